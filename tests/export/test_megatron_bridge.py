"""Plans as overrides of Megatron-Bridge's recipes, and back."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from costmodel.plan_rows import chunks_of_plan
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.megatron_bridge import TARGET
from planner.export.megatron_bridge.keys import override
from tests.differential import plans as small
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told, with_model
from tests.export.test_megatron_lm import varied

MODELS: tuple[str | ModelSpec, ...] = ("llama-3.1-405b", "deepseek-v3", "qwen3-235b-a22b", small.WITH_MTP, small.MOE)
SEARCHED = ("mixtral-8x22b", "llama-3.1-8b")
FP8 = {"fp8": "delayed", "fp8-current": "tensorwise", "fp8-blockwise": "blockwise", "mxfp8": "mxfp8"}


@pytest.fixture(scope="module")
def exported() -> list[Job]:
    """The best plans of real searches, and legal ones of all kinds, as far as they can be said."""
    found = [job for name in SEARCHED for job in best(asked(name, "megatron-bridge", *samples.MODELS[name]), top=2)]
    for seed, model in enumerate(MODELS):
        size = (256, 512, 4096) if isinstance(model, str) else (32, 96, 480)
        found += samples.drawn(asked(model, "megatron-bridge", *size), 12, seed, varied(seed))
    jobs = [job for job in found if told(TARGET, job).launch is not None]
    assert len(jobs) > len(found) / 2
    return jobs


def read_text(text: str) -> Any:
    assert TARGET.read is not None
    return TARGET.read(text)


def overrides(job: Job) -> list[str]:
    assert TARGET.program is not None
    return list(TARGET.program(job, None).arguments)


def base_job(*pins: str) -> Job:
    return best(asked("llama-3.1-8b", "megatron-bridge", 64, 256, 8192), *pins, top=1)[0]


def test_best_plans_are_said() -> None:
    for name in SEARCHED:
        for job in best(asked(name, "megatron-bridge", *samples.MODELS[name]), top=2):
            assert told(TARGET, job).refused == ()


def test_round_trip(exported: list[Job]) -> None:
    told_apart = {"name", "source", "notes", "max_position_embeddings"}
    for job in exported:
        for file in TARGET.write(job, None).files:
            found = read_text(file.text)
            assert not found.unread
            assert samples.read_back(job, found) == job.plan, file.text
            assert found.model.model_dump(exclude=told_apart) == job.model.model_dump(exclude=told_apart)


def means_nothing(plan: Plan, field: str) -> bool:
    adam = field == "optimizer" and plan.optimizer in ("adam", "adamw")
    return adam or samples.means_nothing(plan, field)


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    for job in samples.one_of_each_kind(exported)[::2]:
        assert samples.silent(TARGET, job, means_nothing) == []


def test_what_a_recipe_has_is_taken_back() -> None:
    """A recipe's own layout, recompute or overlap must not stay beside the plan's."""
    job = base_job("pp=1", "recompute=none", "zero_stage=1")
    said = set(overrides(job))
    assert {"model.pipeline_model_parallel_layout=null", "model.recompute_granularity=null"} <= said
    assert {"comm_overlap=null", "ddp.use_megatron_fsdp=false", "model.mtp_num_layers=null"} <= said
    assert "model.num_query_groups=32" in overrides(with_model(job, num_kv_heads=32))


def test_precisions() -> None:
    job = base_job("zero_stage=1", "recompute=none")
    assert "mixed_precision=bf16_with_fp8_current_scaling_mixed" in overrides(changed(job, precision="fp8-current"))
    for fields, refused in (
        ({"precision": "nvfp4"}, "precision"),
        ({"gradient_dtype": "bf16"}, "gradient_dtype"),
        ({"optimizer": "adamw-bf16-moments"}, "optimizer"),
    ):
        assert told(TARGET, changed(job, **fields)).refused == (refused,)


def test_values_in_hydra_s_grammar() -> None:
    assert override("a", "Et*7|(t|)*2L") == "a='Et*7|(t|)*2L'"
    assert override("a", "it's \\") == "a='it\\'s \\\\'"
    assert override("a", ["layernorm", True, None, 1]) == "a=[layernorm,true,null,1]"
    assert override("a", "true") == "a='true'"
    assert override("a", "a2a+p2p") == "a=a2a+p2p"


def test_the_script_passes_what_the_program_has(tmp_path: Path) -> None:
    job = base_job("pp=4")
    job = Job(scenario=job.scenario, plan=job.plan, name="a 'b'\n$(touch owned)")
    script = TARGET.write(job, None).files[0]
    (tmp_path / script.name).write_text(script.text, encoding="utf-8")
    fake = tmp_path / "torchrun"
    fake.write_text(f"#!{sys.executable}\nimport json, sys; print(json.dumps(sys.argv[1:]))", encoding="utf-8")
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", script.name, "--recipe", "llama3_8b_pretrain_config"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = json.loads(done.stdout)
    assert words[-2:] == ["--recipe", "llama3_8b_pretrain_config"]
    assert words[words.index("scripts/training/run_recipe.py") + 1 : -2] == overrides(job)
    assert not (tmp_path / "owned").exists()


def test_reads_what_people_have() -> None:
    found = read_text(
        "torchrun --nproc_per_node=8 run_recipe.py --recipe llama3_70b_pretrain_config \\\n"
        "  model.tensor_model_parallel_size=4 model.sequence_parallel=true train.global_batch_size=128 \\\n"
        "  model.pipeline_model_parallel_size=4 model.virtual_pipeline_model_parallel_size=5 \\\n"
        "  optimizer.lr=3e-4 mixed_precision=bf16_with_mxfp8_mixed model.cuda_graph_impl=local"
    )
    assert found.plan == {
        "tp": 4, "sequence_parallel": True, "global_batch_size": 128, "pp": 4, "vpp": 5, "precision": "mxfp8",
        "gradient_dtype": "fp32",
    }  # fmt: skip
    assert found.ignored == ("optimizer.lr",)
    assert list(found.unread) == ["model.cuda_graph_impl=local"]
    assert found.model is None


def test_reads_a_yaml() -> None:
    text = """
model: {tensor_model_parallel_size: 8, recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}
train: {micro_batch_size: 2}
ddp: {use_distributed_optimizer: true}
comm_overlap: {tp_comm_overlap: true}
"""
    assert read_text(text).plan == {
        "tp": 8, "micro_batch_size": 2, "recompute": "full", "recompute_interval": 1, "zero_stage": 1,
        "tp_overlap": True,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "hello world", "--lr 3", "model.x='"])
def test_unusable_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="from"):
        read_text(text)


def case_of(job: Job) -> dict[str, Any]:
    assert TARGET.program is not None
    program = TARGET.program(job, None)
    return {
        "overrides": list(program.arguments),
        "environment": dict(program.environment),
        "world": job.plan.devices_used,
        "latent": job.model.mla is not None,
        "experts": job.model.moe is not None,
    }


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a release was asked in one process, as it takes longest to import it; and its answers."""

    jobs: list[Job]
    cases: list[dict[str, Any]]
    answers: list[Any]
    of_wrong: list[Any]


@pytest.fixture(scope="module", params=releases.known("megatron_bridge", "0.3.1"))
def answered(request: pytest.FixtureRequest, exported: list[Job]) -> Answered:
    precise = [
        changed(base_job("zero_stage=1", "recompute=none"), precision=name, gradient_dtype="fp32") for name in FP8
    ]
    jobs = [*exported, *precise]
    cases = [case_of(job) for job in jobs]
    case = case_of(base_job("tp=2", "pp=4", "zero_stage=1"))
    wrong = [
        case | {"overrides": [*case["overrides"], "model.no_such_key=1"]},
        case | {"overrides": [*case["overrides"], "model.recompute_granularity=most"]},
        case | {"world": 60},
    ]
    answers = releases.ask("megatron_bridge", request.param, [*cases, *wrong])
    return Answered(jobs=jobs, cases=cases, answers=answers[: len(cases)], of_wrong=answers[len(cases) :])


@pytest.mark.slow
def test_megatron_bridge_takes_every_export(answered: Answered) -> None:
    for job, case, answer in zip(answered.jobs, answered.cases, answered.answers, strict=True):
        plan = job.plan
        assert answer["refused"] is None, (shlex.join(case["overrides"]), answer["refused"])
        assert tuple(map(tuple, answer["chunks"])) == chunks_of_plan(plan)
        assert (answer["dp"], answer["sharded"]) == (plan.dp, plan.zero_stage > 0)
        assert answer["reduced_in_fp32"] == (plan.gradient_dtype == "fp32")
        assert answer["fp8"] == FP8.get(plan.precision)
        assert answer["overlapped"] == (plan.dp * plan.cp > 1)


@pytest.mark.slow
def test_megatron_bridge_refuses_what_is_wrong(answered: Answered) -> None:
    assert len(answered.of_wrong) == 3
    assert all(answer["refused"] for answer in answered.of_wrong)
