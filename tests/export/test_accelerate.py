"""Plans as Accelerate's configuration files, and back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.plan import Plan
from planner.export.accelerate import TARGET
from planner.export.allocator import allocator_of
from planner.export.job import Job
from planner.export.launch import Program
from planner.export.reading import Read
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told, with_model
from tests.plans import finished, slugs
from tests.scenarios import plan_row

# FSDP reduces in the type that it computes in, and Transformers' tensor parallelism leaves norms whole.
SIZES = {
    "llama-3.1-405b": (1024, 1024, 8192),
    "deepseek-v3": (2048, 2048, 4096),
    "qwen3-235b-a22b": (1024, 1024, 4096),
    "mixtral-8x22b": (512, 512, 8192),
    "llama-3.1-8b": (64, 64, 8192),
}
RELEASES = ("1.10.0", "1.12.0")
DRAWS = 150


def narrow(*size: Any, **how: Any) -> Any:
    return asked(*size, **how).model_copy(update={"gradient_dtype": "bf16"})


@pytest.fixture(scope="module")
def searched() -> dict[str, list[Job]]:
    return {name: best(narrow(name, "accelerate", *size), "tp=1", "cp=1", top=1) for name, size in SIZES.items()}


def _drawn(version: str, seed: int) -> Iterator[Job]:
    draw = random.Random(seed)
    for _ in range(DRAWS):
        precision = draw.choice(["bf16", "bf16", "fp32", "tf32", "fp8", "fp8-current"])
        scenario = asked("llama-3.1-8b", "accelerate", 64, 256, 4096, version=version, precision=precision)
        tp, cp, zero = draw.choice([1, 1, 2]), draw.choice([1, 1, 2, 4]), draw.choice([0, 2, 3, 3])
        dp = 64 // (tp * cp)
        sizes = {"tp": tp, "cp": cp, "dp": dp, "zero_stage": zero, "micro_batch_size": draw.choice([1, 2, 4])}
        sizes |= {
            "dp_replicate": dp if zero == 0 else draw.choice([1, 2]),
            "cp_comm_type": int(cp > 1 and draw.random() < 0.5),
        }
        if 256 % (dp * sizes["micro_batch_size"]):
            continue
        plan = finished(scenario, plan_row(256, **sizes, recompute=draw.choice([0, 2])))
        reduced = "bf16" if zero and precision not in ("fp32", "tf32") else "fp32"
        fields: dict[str, Any] = {"gradient_sync": "step", "gradient_dtype": reduced, "sequence_parallel": False}
        fields |= {"offload": draw.choice(["none", "parameters"]) if zero else "none"}
        if zero == 3:
            fields["reshard_after"] = draw.choice(["forward", "backward"])
        if plan.recompute == "full":
            fields["recomputed_layers_per_stage"] = plan.layers_per_stage
        plan = plan.model_copy(update=fields)
        scenario = scenario.model_copy(update={"gradient_dtype": reduced})
        if not slugs(plan, scenario):
            yield Job(scenario=scenario, plan=Plan(**plan.model_dump()))


@pytest.fixture(scope="module")
def exported(searched: dict[str, list[Job]]) -> list[Job]:
    """Those that Accelerate can be told."""
    drawn = [job for seed, version in enumerate(TARGET.versions) for job in _drawn(version, seed)]
    jobs = [job for found in searched.values() for job in found] + drawn
    return [job for job in jobs if told(TARGET, job).launch is not None]


@cache
def _plain() -> Job:
    pins = ("tp=1", "cp=1", "zero_stage=3", "micro_batch_size=1")
    return best(narrow("llama-3.1-8b", "accelerate", 64, 64, 8192), *pins, top=1)[0]


def base(**fields: Any) -> Job:
    """One plan of Llama 3.1 8B: FSDP over all ranks, one micro-batch."""
    return changed(_plain(), **fields)


def program_of(job: Job, version: str | None = None) -> Program:
    assert TARGET.program is not None
    return TARGET.program(job, version)


def text_of(job: Job, version: str | None = None) -> str:
    return TARGET.write(job, version).files[0].text


def read(text: str) -> Read:
    assert TARGET.read is not None
    return TARGET.read(text)


def test_best_plans_are_said_or_refused_for_what_transformers_lacks(searched: dict[str, list[Job]]) -> None:
    for name, jobs in searched.items():
        assert jobs, name
        refused = {field for job in jobs for field in told(TARGET, job).refused}
        assert refused == ({"model.num_mtp_layers"} if name == "deepseek-v3" else set()), name


def test_samples_are_of_all_kinds(exported: list[Job]) -> None:
    kinds = Counter[str]()
    for job in exported:
        plan = job.plan
        kinds.update(
            f"{axis}>1" for axis in ("tp", "cp", "dp_replicate", "num_microbatches") if getattr(plan, axis) > 1
        )
        kinds.update([f"zero {plan.zero_stage}", plan.recompute, plan.reshard_after, plan.cp_comm_type, plan.offload])
        kinds.update([plan.precision, plan.framework_version])
    wanted = {
        "cp>1",
        "tp>1",
        "dp_replicate>1",
        "num_microbatches>1",
        "zero 0",
        "zero 2",
        "zero 3",
        "none",
        "full",
        "backward",
    }
    wanted |= {"all_gather", "p2p", "parameters", "bf16", "fp32", "tf32", "fp8", "fp8-current", *TARGET.versions}
    assert wanted <= set(kinds), kinds


def test_round_trip(exported: list[Job]) -> None:
    for job in exported:
        found = read(text_of(job))
        assert not found.unread
        same: dict[str, Any] = {}
        # One gather for both passes is what stages 2 and 3 have in common.
        if job.plan.zero_stage == 3 and job.plan.reshard_after == "backward":
            same = {"zero_stage": 2, "reshard_after": "forward"}
        # How often one micro-batch is reduced is no question.
        if job.plan.num_microbatches == 1:
            same["gradient_sync"] = samples.read_back(job, found).gradient_sync
        wanted = job.plan.model_copy(update=same).model_dump()
        back = samples.read_back(job, found).model_dump()
        assert {name: value for name, value in back.items() if value != wanted[name]} == {}, job.plan


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    def nothing(plan: Plan, field: str) -> bool:
        alike = {"gradient_sync": plan.num_microbatches == 1, "zero_stage": plan.zero_stage in (2, 3)}
        return samples.means_nothing(plan, field) or alike.get(field, False)

    for job in samples.one_of_each_kind(exported):
        assert samples.silent(TARGET, job, nothing) == []


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"gradient_dtype": "fp32"}, "gradient_dtype"),
        ({"precision": "bf16-pure"}, "precision"),
        ({"precision": "fp8-rowwise"}, "precision"),
        ({"precision": "fp16"}, "precision"),
        ({"recompute": "selective"}, "recompute"),
        ({"offload": "optimizer"}, "offload"),
        ({"reshard_after": "step"}, "reshard_after"),
        ({"optimizer": "muon"}, "optimizer"),
        ({"zero_stage": 1}, "zero_stage"),
        ({"ep": 2}, "ep"),
        ({"cp_balanced": False}, "cp_balanced"),
        ({"num_microbatches": 2, "global_batch_size": 128, "gradient_sync": "microbatch"}, "gradient_sync"),
        ({"tp": 2, "dp": 32, "dp_shard": 32, "global_batch_size": 32, "sequence_parallel": True}, "sequence_parallel"),
        (
            {"cp": 2, "dp": 32, "dp_shard": 32, "global_batch_size": 32, "cp_comm_type": "a2a", "cp_a2a_degree": 2},
            "cp_comm_type",
        ),
    ],
)
def test_refusals(fields: dict[str, Any], refused: str) -> None:
    assert refused in told(TARGET, base(**fields)).refused


def test_models_are_the_scripts_but_for_layers_that_transformers_does_not_train() -> None:
    assert told(TARGET, with_model(base(), num_mtp_layers=1)).refused == ("model.num_mtp_layers",)
    assert any("llama-3.1-8b" in note for note in TARGET.write(base(), None).notes)


def test_versions() -> None:
    assert TARGET.versions == ("1.10", "1.12", "1.15")
    ring = base(cp=2, dp=32, dp_shard=32, global_batch_size=32, cp_comm_type="all_gather")
    mesh = {v: yaml.safe_load(text_of(ring, v))["parallelism_config"] for v in TARGET.versions}
    assert ["parallelism_config_cp_backend" in found for found in mesh.values()] == [False, True, True]
    current = base(precision="fp8-current")
    assert told(TARGET, current, "1.15").refused == ()
    assert told(TARGET, current, "1.12").refused == ("precision",)
    with pytest.raises(UnknownName):
        TARGET.write(base(), "0.1")


def test_command_and_names() -> None:
    job = Job(scenario=base().scenario, plan=base().plan, name="a 'name'\n$(touch owned): -")
    launch = TARGET.write(job, None)
    assert launch.files[0].text.splitlines()[0].startswith("# a 'name' $(touch owned): -: llama-3.1-8b")
    yaml.safe_load(launch.files[0].text)
    assert "owned" not in launch.command
    assert "accelerate launch" in launch.command
    assert launch.command.startswith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")
    assert '--machine_rank "$NODE_RANK"' in launch.command


def test_reads_what_people_have() -> None:
    found = read(
        "compute_environment: LOCAL_MACHINE\n"
        "distributed_type: FSDP\n"
        "mixed_precision: bf16\n"
        "num_processes: 16\n"
        "fsdp_config:\n"
        "  fsdp_version: 1\n"
        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        "  fsdp_activation_checkpointing: 'true'\n"
        "  fsdp_ignored_modules: lm_head\n"
        "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
    )
    said = {"zero_stage": 2, "devices_used": 16, "recompute": "full", "precision": "bf16", "gradient_dtype": "bf16"}
    assert {name: found.plan.get(name) for name in said} == said
    assert set(found.unread) == {"fsdp_ignored_modules"}
    assert "micro_batch_size" not in found.plan


def test_reads_a_command_line() -> None:
    found = read(
        "accelerate launch --use_fsdp --fsdp_version=2 --fsdp_reshard_after_forward true --mixed-precision bf16 \\\n"
        "  --num_processes ${N:-32} --parallelism_config_sp_size 4 --parallelism_config_dp_shard_size 8 \\\n"
        "  train.py --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --optim adamw_torch_fused"
    )
    said = {
        "zero_stage": 3, "cp": 4, "cp_comm_type": "a2a", "dp_shard": 8, "devices_used": 32, "micro_batch_size": 2,
        "num_microbatches": 4, "global_batch_size": 64, "optimizer": "adamw",
    }  # fmt: skip
    assert {name: found.plan.get(name) for name in said} == said
    assert read("distributed_type: 'NO'\nmixed_precision: no\n").plan["precision"] == "fp32"
    assert set(read("distributed_type: XLA\n").unread) == {"distributed_type"}


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("FULL_SHARD", {"zero_stage": 3}),
        ("SHARD_GRAD_OP", {"zero_stage": 2}),
        ("NO_SHARD", {"zero_stage": 0, "dp_shard": 1}),
        ("3", {"zero_stage": 0, "dp_shard": 1}),
        ("HYBRID_SHARD", {"zero_stage": 3, "dp_shard": 8, "dp_replicate": 4}),
        ("4", {"zero_stage": 3, "dp_shard": 8, "dp_replicate": 4}),
        ("HYBRID_SHARD_ZERO2", {"zero_stage": 2, "dp_shard": 8, "dp_replicate": 4}),
        ("5", {"zero_stage": 2, "dp_shard": 8, "dp_replicate": 4}),
    ],
)
def test_strategies_of_fsdp_1(strategy: str, said: dict[str, int]) -> None:
    text = "distributed_type: FSDP\nnum_machines: 4\nnum_processes: 32\nfsdp_config:\n  fsdp_sharding_strategy: "
    plan = read(f"{text}{strategy}\n").plan
    assert {name: plan.get(name) for name in ("zero_stage", "dp_shard", "dp_replicate") if name in plan} == said


def test_strategies_that_cannot_be_told() -> None:
    found = read("distributed_type: FSDP\nnum_processes: 32\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n")
    assert set(found.unread) == {"fsdp_sharding_strategy HYBRID_SHARD"}
    found = read("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SOME_SHARD\n")
    assert set(found.unread) == {"fsdp_sharding_strategy"}
    assert "zero_stage" not in found.plan


@pytest.mark.parametrize(
    "text",
    [
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n",
        "accelerate launch --use_deepspeed --zero_stage 3 train.py",
        "distributed_type: MEGATRON_LM\n",
    ],
)
def test_runs_of_other_frameworks_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"hands the run over to .* --from (deepspeed|megatron-lm)"):
        read(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnreadableFile),
        ("- a list", UnreadableFile),
        ("a: [", UnreadableFile),
        ("--mixed_precision 'bf16", InvalidInput),
        ("num_processes: many", InvalidInput),
        ("parallelism_config:\n  parallelism_config_tp_size: 1.5", InvalidInput),
    ],
)
def test_unusable_texts(text: str, error: type[InvalidInput]) -> None:
    with pytest.raises(error):
        read(text)


def _taken(jobs: list[Job], version: str | None, answers: list[Any]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        plan, program = job.plan, program_of(job, version)
        assert answer["refused"] is None, plan
        theirs = {name: value for name, value in program.environment.items() if name not in allocator_of(job)}
        assert {name: answer["environment"].get(name) for name in theirs} == theirs
        assert answer["script"] == list(program.arguments)
        if answer["mesh"] is not None:
            mesh = {"dp_replicate": plan.dp_replicate, "dp_shard": plan.dp_shard, "tp": plan.tp, "cp": plan.cp}
            assert answer["mesh"] == mesh | ({"sp": 1} if "sp" in answer["mesh"] else {})
        if plan.zero_stage:
            wanted = {
                "version": 2,
                "reshard_after_forward": plan.zero_stage == 3 and plan.reshard_after == "forward",
                "activation_checkpointing": plan.recompute == "full",
                "offloads": plan.offload == "parameters",
                "reduces_in": {"bf16": "bfloat16", "fp32": "float32"}[plan.gradient_dtype],
            }
            assert answer["fsdp"] == wanted


def _cases(jobs: list[Job], version: str | None) -> list[dict[str, Any]]:
    return [
        {"text": text_of(job, version), "arguments": program_of(job, version).arguments, "world": job.plan.devices_used}
        for job in jobs
    ]


@pytest.mark.slow
def test_accelerate_takes_every_file(exported: list[Job]) -> None:
    jobs = [job for job in exported if told(TARGET, job, "1.15").launch is not None]
    assert len(jobs) > 30
    _taken(jobs, "1.15", releases.ask_installed("accelerate_launch", _cases(jobs, "1.15"), "accelerate", "torch"))


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("accelerate", *RELEASES))
def test_older_releases_take_every_file(release: str, exported: list[Job]) -> None:
    version = release.rpartition(".")[0]
    jobs = samples.one_of_each_kind(job for job in exported if told(TARGET, job, version).launch is not None)
    assert len(jobs) > 8
    _taken(jobs, version, releases.ask("accelerate", release, _cases(jobs, version), "accelerate_launch"))
