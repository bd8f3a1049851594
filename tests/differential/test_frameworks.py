"""Our rules against the frameworks' own code: the same plans, the same verdicts.

The packages come with the extra ``frameworks``, in the versions that the rules were written for. Each framework is
asked in one process of its own; nothing here imports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.rules import broken, rules_for
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import SCHEDULES
from tests.differential import plans

ROOT = Path(__file__).parents[2]

# Devices, sequences and tokens of a sequence: sizes that few degrees divide.
QUESTIONS = ((8, 48, 240), (24, 48, 252), (32, 80, 480))

OURS = "ours alone: it says what makes sense, not what would run"
OFFERED = "it has it, so no plan breaks the rule"
MEANING = "the meaning of our axes, for which the framework has no flag"

# Rules that the package can't be seen to enforce, with the reason; all others have to be.
UNCHECKED: Mapping[str, Mapping[str, str]] = {
    "megatron-core": {
        "enough_devices": OURS,
        "idle_devices_are_whole_nodes": OURS,
        "pipeline_within_layers": OURS,
        "every_stage_has_a_layer": OURS,
        "chunks_within_layers": OURS,
        "layout_feasible": "a layout that can't be made is no plan",
        "schedule_known": MEANING,
        "schedule_fits_chunks": "the schedule follows from vpp; vpp beside pp 1 is refused",
        "experts_need_moe": "ep is refused, but etp of a model without experts is ignored",
        "tensor_parallel_known": OFFERED,
        "expert_parallel_known": OFFERED,
        "zero_stage_known": MEANING,
        "dp_is_replicate_times_shard": MEANING,
        "unsharded_has_one_shard": MEANING,
        "cp_comm_type_known": MEANING,
        "cp_comm_type_canonical": OURS,
        "recompute_known": MEANING,
        "megatron_fsdp_optimizer": "in training/arguments.py, which the wheel lacks",
        "a2a_heads_divisible_by_cp": "in Transformer Engine, at run time",
        "a2a_kv_heads_divisible_by_cp": "in Transformer Engine, at run time",
    },
    "accelerate": {
        "enough_devices": OURS,
        "idle_devices_are_whole_nodes": OURS,
        "batch_divisible": "the batch is the training script's",
        "microbatches_fill_batch": "the batch is the training script's",
        "pipeline_within_layers": "there are no pipelines",
        "every_stage_has_a_layer": "there are no pipelines",
        "chunks_within_layers": "there are no pipelines",
        "layout_feasible": "there are no pipelines",
        "schedule_known": "there are no pipelines",
        "schedule_fits_chunks": "there are no pipelines",
        "experts_need_moe": "there is no expert parallelism",
        "experts_divisible_by_ep": "there is no expert parallelism",
        "no_expert_parallelism": "there is no size to say it with",
        "tensor_parallel_known": OFFERED,
        "expert_parallel_known": OFFERED,
        "zero_stage_known": MEANING,
        "unsharded_has_one_shard": MEANING,
        "cp_comm_type_known": MEANING,
        "cp_comm_type_canonical": OURS,
        "recompute_known": MEANING,
        "context_parallelism_is_sharded": "when the model enters the context, not when the accelerator starts",
        "sequence_divisible_by_cp": "in PyTorch's context parallelism, at run time",
        "a2a_shards_over_all_replicas": "in DeepSpeed",
        "a2a_sequence_divisible_by_cp": "in DeepSpeed, at run time",
        "a2a_heads_divisible_by_cp": "in DeepSpeed, at run time",
        "a2a_kv_heads_match_cp": "in DeepSpeed, at run time",
    },
    "torchtitan": {
        "enough_devices": OURS,
        "idle_devices_are_whole_nodes": OURS,
        "microbatches_fill_batch": "fewer micro-batches are made up for by gradient accumulation",
        "pipeline_within_layers": OURS,
        "every_stage_has_a_layer": OURS,
        "chunks_within_layers": OURS,
        "layout_feasible": "a layout that can't be made is no plan",
        "schedule_known": "PyTorch has more schedules than are priced here",
        "schedule_fits_chunks": OURS,
        "experts_need_moe": "ep of a model without experts is ignored, and there is no etp",
        "experts_divisible_by_ep": "0.3.0 lacks the check; the main branch has it (PR 4258, 2026-08)",
        "tensor_parallel_known": OFFERED,
        "expert_parallel_known": OFFERED,
        "zero_stage_known": MEANING,
        "unsharded_has_one_shard": MEANING,
        "cp_comm_type_known": MEANING,
        "cp_comm_type_canonical": OURS,
        "recompute_known": MEANING,
        "expert_tensor_parallel_follows_tp": "there is no degree of its own to get wrong",
        "ring_rotation_removed": "there is no option left to say it with",
        "context_parallelism_is_sharded": MEANING,
    },
}

# Rules that refuse what the framework can't be told, so that it judges another plan.
UNSAYABLE: Mapping[str, frozenset[str]] = {
    "accelerate": frozenset({"no_expert_parallelism", "schedule_known"}),
    "megatron-core": frozenset({"dp_is_replicate_times_shard"}),
    "torchtitan": frozenset({"expert_tensor_parallel_follows_tp", "experts_need_moe"}),
}

# Rules that no plan can break without breaking another one too.
NEVER_ALONE: Mapping[str, Mapping[str, str]] = {
    "accelerate": {},
    "megatron-core": {},
    "torchtitan": {"heads_divisible_by_tp": "the KV heads divide the heads"},
}

MODELS: Mapping[str, tuple[ModelSpec, ...]] = {
    "accelerate": (plans.DENSE, plans.TIED),
    "megatron-core": (
        plans.DENSE,
        plans.ODD_WIDTH,
        plans.FEW_KV_HEADS,
        plans.MOE,
        plans.MOE_WITH_DENSE,
        plans.LATENT,
        plans.HYBRID,
    ),
    "torchtitan": (plans.DENSE, plans.TIED, plans.MOE),
}


# Under sp (a2a) Accelerate leaves all checks to DeepSpeed.
ASKED_OF: Mapping[str, Mapping[str, Any]] = {"accelerate": {"cp_comm_types": ("p2p", "all_gather")}}

# Plans of each question that break no rule, and of those that break the same one alone; where few rules can be put to
# the framework, more of each.
SAMPLE: Mapping[str, Mapping[str, int]] = {
    "accelerate": {"legal": 20, "illegal": 8},
    "megatron-core": {"legal": 5, "illegal": 1},
    "torchtitan": {"legal": 5, "illegal": 1},
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One plan, the rules that it breaks here, and what the framework says."""

    scenario: Scenario
    row: plans.Row
    rules: frozenset[str]
    verdict: Mapping[str, Any]

    @cached_property
    def accepted(self) -> bool:
        return self.verdict["refused_by"] is None


def missing_packages() -> list[str]:
    """What the extra ``frameworks`` pins and this environment lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = []
    for requirement in project["optional-dependencies"]["frameworks"]:
        name, version = requirement.split("==")
        try:
            # A CPU build of PyTorch calls itself 2.13.0+cpu.
            if metadata.version(name).partition("+")[0] != version:
                missing.append(requirement)
        except metadata.PackageNotFoundError:
            missing.append(requirement)
    return missing


def ask(probe: str, questions: Mapping[str, Any], folder: Path, packages: Path | None = None) -> dict[str, Any]:
    """The answers of the probe of that name, from a process of its own; ``packages`` go before those installed."""
    missing = missing_packages()
    if missing:
        reason = f"pip install '.[frameworks]' brings what is missing: {', '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    asked, answered = folder / "asked.json", folder / "answered.json"
    asked.write_text(json.dumps(questions), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name(f"{probe}_probe.py")), str(asked), str(answered)]
    environment = os.environ | ({"PYTHONPATH": str(packages)} if packages else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return answers


@pytest.fixture(scope="module", params=sorted(MODELS))
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    name = request.param
    chosen: list[tuple[Scenario, plans.Row]] = []
    for model in MODELS[name]:
        for devices, batch, seq_len in QUESTIONS:
            scenario = plans.scenario_of(model, name, devices, batch, seq_len, **ASKED_OF.get(name, {}))
            rows = plans.chosen_rows(scenario, seed=1, draws=1500, **SAMPLE[name])
            chosen += [(scenario, row) for row in rows]
    cases = [plans.case_of(scenario, row) for scenario, row in chosen]
    probe = name.removesuffix("-core")
    verdicts = ask(probe, {"plans": cases}, tmp_path_factory.mktemp(probe))["plans"]
    return [
        Asked(
            scenario=scenario,
            row=row,
            rules=frozenset(rule.name for rule, _ in broken(scenario, row)),
            verdict=verdict,
        )
        for (scenario, row), verdict in zip(chosen, verdicts, strict=True)
    ]


@pytest.mark.slow
def test_what_we_accept_the_framework_accepts(asked: list[Asked]) -> None:
    legal = [plan for plan in asked if not plan.rules]
    assert len(legal) > 40
    assert [(plan.scenario.model.name, plan.row, plan.verdict) for plan in legal if not plan.accepted] == []


@pytest.mark.slow
def test_what_breaks_a_rule_of_the_framework_it_refuses(asked: list[Asked]) -> None:
    name = asked[0].scenario.framework.name
    illegal = [plan for plan in asked if plan.rules - set(UNCHECKED[name]) and not plan.rules & UNSAYABLE[name]]
    assert len(illegal) > 40
    assert [(plan.scenario.model.name, plan.row, set(plan.rules)) for plan in illegal if plan.accepted] == []


@pytest.mark.slow
def test_every_rule_was_put_to_the_framework_or_says_why_not(asked: list[Asked]) -> None:
    framework = asked[0].scenario.framework
    names = {rule.name for rule in rules_for(framework)}
    unchecked, never_alone = set(UNCHECKED[framework.name]), set(NEVER_ALONE[framework.name])
    assert unchecked <= names
    assert UNSAYABLE[framework.name] <= unchecked
    alone = Counter(rule for plan in asked if len(plan.rules) == 1 for rule in plan.rules)
    elsewhere = plans.not_drawn(framework)
    assert names - unchecked - never_alone - elsewhere - set(alone) == set(), "rules that no plan broke alone"
    assert never_alone & set(alone) == set()
    let_pass = {rule for plan in asked if len(plan.rules) == 1 and plan.accepted for rule in plan.rules}
    assert unchecked & set(alone) - let_pass == set(), "rules that the framework turns out to enforce"


@pytest.mark.slow
def test_megatron_places_the_layers_that_the_plan_says(asked: list[Asked]) -> None:
    if asked[0].scenario.framework.name != "megatron-core":
        pytest.skip("only Megatron-Core lays out layers by itself")
    for plan in asked:
        if plan.accepted:
            chunks = plans.chunks_of(plan.scenario, plan.row)
            assert tuple(map(tuple, plan.verdict["chunks"])) == chunks, plan.row


@pytest.mark.slow
def test_which_splits_megatron_s_flags_give(tmp_path: Path) -> None:
    """Versions without a layout: a split of our recipe is legal exactly where some setting of the flags gives it."""
    questions = [
        {"num_layers": layers, "pp": pp, "vpp": vpp} for layers in (8, 11, 12, 14) for pp in (2, 3, 4) for vpp in (1, 2)
    ]
    answers = ask("megatron", {"plans": [], "splits": questions}, tmp_path)["splits"]
    framework = load_framework("megatron-core", "0.12")
    verdicts = Counter[bool]()
    for question, splits in zip(questions, answers, strict=True):
        model = plans.DENSE.model_copy(update={"num_layers": question["num_layers"]})
        scenario = plans.scenario_of(model, "megatron-core", 16, 48, 240).model_copy(update={"framework": framework})
        for layout in plans.LAYOUTS:
            schedule = SCHEDULES.index("interleaved_1f1b" if question["vpp"] > 1 else "1f1b")
            row = {"pp": question["pp"], "vpp": question["vpp"], "layout": int(layout), "schedule": schedule}
            chunks = plans.chunks_of(scenario, row)
            assert chunks is not None
            rule = next(rule for rule in rules_for(framework) if rule.name == "layers_expressible")
            ours = bool(rule.holds(scenario, plans.columns_of(row)))
            assert ours == ([list(device) for device in chunks] in splits), (question, layout)
            verdicts[ours] += 1
    assert min(verdicts[True], verdicts[False]) > 10
