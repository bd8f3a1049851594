"""Our rules against every Megatron-Core that the catalog tells apart, where ``$MEGATRON_CORE_VERSIONS`` holds them.

    for version in 0.9.0 0.10.0 0.11.0 0.12.0 0.13.0 0.14.0 0.15.0 0.16.1; do
        pip install --no-deps --target "$MEGATRON_CORE_VERSIONS/$version" megatron-core==$version
    done

All of them are much for every run, so CI asks three and the newest; docs/rules.md says what was asked last.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.rules import broken, rules_for
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from tests.differential import plans
from tests.differential.test_frameworks import QUESTIONS, UNCHECKED, UNSAYABLE, ask

FOLDER = os.environ.get("MEGATRON_CORE_VERSIONS")
RELEASES = sorted(path.name for path in Path(FOLDER).iterdir()) if FOLDER else []
MODELS = (
    plans.DENSE,
    plans.FEW_KV_HEADS,
    plans.MOE,
    plans.MOE_WITH_SHARED,
    plans.LATENT,
    plans.HYBRID,
    plans.WITH_MTP,
)

# 0.10 has shared experts in layers of Transformer Engine alone, which no CPU builds.
UNBUILT = {"0.10": {plans.MOE_WITH_SHARED.name}}
UNSEEN = {"0.10": {"shared_expert_ffn_divisible_by_tp"}}

# Rules whose check this probe can't reach in old versions.
UNREACHED = {
    "sequence_divisible_by_cp": "before 0.11 the batch is cut by the training script",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="$MEGATRON_CORE_VERSIONS names no folder with releases of Megatron-Core"),
]


def questions_for(release: str) -> list[tuple[Scenario, plans.Row]]:
    version = load_framework("megatron-core", release).version
    chosen = []
    for model in (model for model in MODELS if model.name not in UNBUILT.get(version, ())):
        for devices, batch, seq_len in QUESTIONS[:2]:
            scenario = plans.scenario_of(model, "megatron-core", devices, batch, seq_len, version=version)
            rows = plans.chosen_rows(scenario, seed=2, draws=1500, legal=6, illegal=2)
            chosen += [(scenario, row) for row in rows]
    return chosen


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a release was asked, plans and splits in one process, as it takes longest to import it; and its answers."""

    release: str
    chosen: list[tuple[Scenario, plans.Row]]
    splits: list[dict[str, int]]
    answers: dict[str, Any]


@pytest.fixture(scope="module", params=RELEASES)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    release = request.param
    chosen = questions_for(release)
    splits = [
        {"num_layers": layers, "pp": pp, "vpp": vpp} for layers in (8, 11, 12, 14) for pp in (2, 3, 4) for vpp in (1, 2)
    ]
    # A layout string says any split.
    if load_framework("megatron-core", release).has("pipeline_layout"):
        splits = []
    questions = {"plans": [plans.case_of(scenario, row) for scenario, row in chosen], "splits": splits}
    assert FOLDER is not None
    answers = ask("megatron", questions, tmp_path_factory.mktemp("megatron"), packages=Path(FOLDER) / release)
    return Asked(release=release, chosen=chosen, splits=splits, answers=answers)


def test_a_version_accepts_what_we_accept_and_refuses_what_breaks_its_rules(asked: Asked) -> None:
    release, chosen, verdicts = asked.release, asked.chosen, asked.answers["plans"]
    unchecked = set(UNCHECKED["megatron-core"]) | set(UNREACHED)
    seen: Counter[str] = Counter()
    wrong = []
    for (scenario, row), verdict in zip(chosen, verdicts, strict=True):
        rules = {rule.name for rule, _ in broken(scenario, row)}
        accepted = verdict["refused_by"] is None
        seen.update(rules or {"legal"})
        refusable = rules - unchecked and not rules & UNSAYABLE["megatron-core"]
        if (not rules and not accepted) or (refusable and accepted):
            wrong.append((scenario.model.name, rules, verdict, row))
        if accepted and not rules:
            chunks = plans.chunks_of(scenario, row)
            assert tuple(map(tuple, verdict["chunks"])) == chunks, row
    assert wrong == []
    assert seen["legal"] > 20
    framework = load_framework("megatron-core", release)
    version, applying = framework.version, {rule.name for rule in rules_for(framework)}
    unseen = UNSEEN.get(version, set()) | plans.not_drawn(framework)
    assert {rule for rule in applying - unchecked if not seen[rule]} <= unseen


def test_which_splits_the_flags_of_a_version_give(asked: Asked) -> None:
    framework = load_framework("megatron-core", asked.release)
    if not asked.splits:
        pytest.skip("a layout string says any split")
    verdicts = Counter[bool]()
    for question, splits in zip(asked.splits, asked.answers["splits"], strict=True):
        model = plans.DENSE.model_copy(update={"num_layers": question["num_layers"]})
        scenario = plans.scenario_of(model, "megatron-core", 16, 48, 240, version=framework.version)
        rule = next(rule for rule in rules_for(framework) if rule.name == "layers_expressible")
        for layout in plans.LAYOUTS:
            schedule = SCHEDULES.index("interleaved_1f1b" if question["vpp"] > 1 else "1f1b")
            row = {"pp": question["pp"], "vpp": question["vpp"], "layout": int(layout), "schedule": schedule}
            chunks = plans.chunks_of(scenario, row)
            assert chunks is not None
            ours = bool(rule.holds(scenario, plans.columns_of(row)))
            assert ours == ([list(device) for device in chunks] in splits), (question, layout)
            verdicts[ours] += 1
    assert min(verdicts[True], verdicts[False]) > 10
