"""Plans as DeepSpeed's JSON file, and back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.plan import Plan
from planner.export.deepspeed import TARGET
from planner.export.deepspeed.pipelines import split
from planner.export.deepspeed.write import OPTIMIZERS
from planner.export.dotted import dotted
from planner.export.job import Job
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told

SMALL = samples.MODELS["llama-3.1-8b"]


def without_sequence_parallel(plan: Plan) -> dict[str, Any]:
    """As AutoTP has it, with Ulysses where a plan has context parallelism."""
    found: dict[str, Any] = {"sequence_parallel": False}
    return found | ({"cp_comm_type": "a2a", "cp_a2a_degree": plan.cp} if plan.cp > 1 else {})


@pytest.fixture(scope="module")
def searched() -> dict[str, list[Job]]:
    """The best plans with one rank of tensor parallelism: the planner lays norms over tp, AutoTP does not."""
    more = {"mixtral-8x22b": ("pp=1", "ep=8"), "deepseek-v3": ("pp=1",)}
    sizes = samples.MODELS.items()
    return {name: best(asked(name, "deepspeed", *size), "tp=1", *more.get(name, ())) for name, size in sizes}


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    found: list[Job] = []
    for seed, (model, version) in enumerate(product(("llama-3.1-8b", "mixtral-8x22b"), TARGET.versions)):
        scenario = asked(model, "deepspeed", 64, 256, 4096, version=version)
        # Stage 0 adds gradients up in the model's own type.
        scenario = scenario.model_copy(update={"gradient_dtype": "bf16" if version == "0.18" else None})
        found += samples.drawn(scenario, 40, seed, without_sequence_parallel)
    return found


@pytest.fixture(scope="module")
def exported(searched: dict[str, list[Job]], drawn: list[Job]) -> list[Job]:
    """Those that DeepSpeed can be told."""
    jobs = [job for found in searched.values() for job in found] + drawn
    return [job for job in jobs if told(TARGET, job).launch is not None]


def config_of(job: Job, version: str | None = None) -> dict[str, Any]:
    return json.loads(TARGET.write(job, version).files[0].text)


def test_best_plans_of_every_model_are_said(searched: dict[str, list[Job]]) -> None:
    for name, jobs in searched.items():
        assert jobs, name
        for job in jobs:
            assert told(TARGET, job).refused == (), name


def test_samples_are_of_all_kinds(exported: list[Job]) -> None:
    kinds = Counter[str]()
    for job in exported:
        plan = job.plan
        kinds.update(f"{axis}>1" for axis in ("tp", "cp", "pp", "ep", "dp_replicate") if getattr(plan, axis) > 1)
        kinds.update([f"zero {plan.zero_stage}", plan.recompute, plan.framework_version])
    wanted = {"tp>1", "cp>1", "pp>1", "ep>1", "zero 0", "zero 1", "zero 2", "zero 3", "none", "full", "0.18", "0.19"}
    assert wanted <= set(kinds), kinds


def test_round_trip(exported: list[Job]) -> None:
    for job in exported:
        found = TARGET.read(TARGET.write(job, None).files[0].text)
        assert not found.unread
        assert samples.read_back(job, found) == job.plan


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    # A plan of each kind will do.
    for job in samples.one_of_each_kind(exported):
        assert samples.silent(TARGET, job, samples.means_nothing) == []


def test_every_field_is_tried(exported: list[Job]) -> None:
    job = next(job for job in exported if job.plan.pp > 1)
    tried = {name for name, _ in samples.mutations(job.plan)}
    assert tried | samples.UNCHANGED == set(Plan.model_fields)


def test_zero_3_counts_layers_in_parameters() -> None:
    job = changed(best(asked("llama-3.1-8b", "deepspeed", *SMALL), "tp=1", "zero_stage=3", top=1)[0], fsdp_prefetch=2)
    zero = config_of(job)["zero_optimization"]
    # 4096 * (4096 + 2 * 1024 + 4096) attention, 3 * 4096 * 14336 MLP, 2 * 4096 norms.
    layer = 4096 * 10240 + 3 * 4096 * 14336 + 2 * 4096
    assert zero["stage3_max_reuse_distance"] == layer
    assert zero["stage3_prefetch_bucket_size"] == 2 * layer
    assert zero["stage3_max_live_parameters"] == 3 * layer
    assert TARGET.read(json.dumps({"zero_optimization": zero})).plan["fsdp_prefetch"] == 2


def test_offload_zero_plus_and_recompute() -> None:
    base = best(asked("llama-3.1-8b", "deepspeed", *SMALL), "tp=1", "zero_stage=3", top=1)[0]
    full = {"recompute": "full", "recomputed_layers_per_stage": (32,)}
    optimizer = config_of(changed(base, offload="optimizer"))["zero_optimization"]
    assert optimizer["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "offload_param" not in optimizer
    parameters = config_of(changed(base, offload="parameters"))["zero_optimization"]
    assert {"offload_optimizer", "offload_param"} <= set(parameters)
    assert config_of(changed(base, offload="activations", **full))["activation_checkpointing"] == {
        "partition_activations": False,
        "cpu_checkpointing": True,
        "number_checkpoints": 32,
    }
    none = changed(base, offload="activations", recompute="none", recomputed_layers_per_stage=(0,))
    assert told(TARGET, none).refused == ("offload",)
    plus = config_of(changed(base, zero_plus=("qwz", "hpz", "qgz")))["zero_optimization"]
    assert (plus["zero_quantized_weights"], plus["zero_quantized_gradients"]) == (True, True)
    assert plus["zero_hpz_partition_size"] == base.devices_per_node == 8


def test_precisions() -> None:
    base = best(asked("llama-3.1-8b", "deepspeed", *SMALL), "tp=1", "zero_stage=2", top=1)[0]
    said = {
        name: config_of(changed(base, precision=name, gradient_dtype=dtype))
        for name, dtype in (("bf16", "fp32"), ("bf16-pure", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"))
    }
    assert [said[name]["bf16"]["enabled"] for name in said] == [True, True, False, False]
    assert [said[name]["fp16"]["enabled"] for name in said] == [False, False, True, False]
    assert [said[name]["data_types"]["grad_accum_dtype"] for name in said] == ["fp32", "bf16", "fp16", "fp32"]
    assert said["bf16-pure"]["bf16"]["bf16_optimizer_states"] is True
    pure = told(TARGET, changed(base, precision="bf16-pure", gradient_dtype="bf16"), "0.18")
    assert set(pure.refused) == {"precision"}
    # deepspeed 0.19.8 runtime/engine.py:2323, unsupported mix
    whole = changed(base, zero_stage=0, dp_replicate=base.plan.dp, dp_shard=1, gradient_sync="step")
    assert told(TARGET, whole).refused == ("gradient_dtype",)


def test_versions() -> None:
    scenario = asked("mixtral-8x22b", "deepspeed", *samples.MODELS["mixtral-8x22b"])
    base = best(scenario, "tp=1", "pp=1", "ep=8", "zero_stage=3", top=1)[0]
    assert config_of(base)["expert_parallel"] == {"enabled": True, "autoep_size": 8, "comm_backend": "comm"}
    assert set(told(TARGET, base, "0.18").refused) == {"ep", "moe_dispatcher"}
    deduplicated = config_of(changed(base, moe_dispatcher="deduplicated"))["expert_parallel"]
    assert deduplicated["comm_backend"] == "deepep"
    assert deduplicated["comm_max_tokens_per_rank"] == base.plan.micro_batch_size * 4096
    with pytest.raises(UnknownName, match=r"0\.18, 0\.19"):
        TARGET.write(base, "0.3")
    old = changed(base, framework_version="0.18", ep=1, dp_replicate=2, dp_shard=base.plan.dp // 2)
    launch = TARGET.write(old, None)
    assert launch.version == "0.18"
    assert json.loads(launch.files[0].text)["zero_optimization"]["mics_shard_size"] == base.plan.dp // 2
    assert "dp_replicate" in told(TARGET, old, "0.19").refused


def test_pipelines_are_code(exported: list[Job]) -> None:
    base = next(job for job in exported if job.plan.pp > 1 and job.plan.recompute == "full")
    stages, layers = base.plan.pp, base.model.num_layers
    launch = TARGET.write(base, None)
    assert json.loads(launch.files[0].text)["pipeline"] == {
        "stages": stages,
        "partition": "type:decoderlayer",
        "activation_checkpoint_interval": 1,
    }
    assert any(f"num_stages={stages}, " in note and "interval=1)" in note for note in launch.notes)
    tensor = told(TARGET, changed(base, tp=2, sequence_parallel=False, devices_used=2 * base.plan.devices_used))
    assert tensor.refused == ("tp",)
    uneven = (layers // stages - 1, layers // stages + 1, *base.plan.layers_per_stage[2:])
    again = changed(base, layers_per_stage=uneven, recomputed_layers_per_stage=uneven)
    assert told(TARGET, again).refused == ("layers_per_stage",)
    assert TARGET.write(changed(base, recompute_interval=2), None) != launch
    assert split(126, 4) == (32, 32, 31, 31)


def test_command_and_names() -> None:
    base = best(asked("llama-3.1-8b", "deepspeed", *SMALL), "tp=1", top=1)[0]
    many = TARGET.write(base, None).command
    script = 'train.py --deepspeed --deepspeed_config ds_config.json "$@"'
    start = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True deepspeed"
    assert many == f"{start} --hostfile hostfile --num_nodes 8 --num_gpus 8 {script}"
    assert any(".deepspeed_env" in note for note in TARGET.write(base, None).notes)
    few = best(asked("llama-3.1-8b", "deepspeed", 4, 8, 2048), "tp=1", top=1)[0]
    assert TARGET.write(few, None).command.startswith(f"{start} --num_gpus 4 train.py ")
    assert not any(".deepspeed_env" in note for note in TARGET.write(few, None).notes)
    odd = Job(scenario=base.scenario, plan=base.plan, name="a 'b'\n$(c)")
    assert TARGET.write(odd, None).command == many


# As people write them: a Hugging Face Trainer's file, and one of Megatron-DeepSpeed's days.
TRAINER = """{
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": true},
        "offload_param": {"device": "cpu", "pin_memory": true},
        "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}"""
OLD = """{
  // of an earlier version
  "train_batch_size": 1_024, # all of it
  "zero_optimization": {"stage": 1, "cpu_offload": true, "overlap_comm": false},
  "bfloat16": {"enabled": true},
  "tensor_parallel": {"autotp_size": 4},
  "wandb": {"enabled": true, "project": "http://a//b # c"},
  "elasticity": {"enabled": true}, "nvme_thing": 3,
}""".replace("1_024", "1024")


def test_reads_what_a_trainer_has() -> None:
    found = TARGET.read(TRAINER)
    assert found.plan == {
        "framework": "deepspeed",
        "optimizer": "adamw",
        "zero_stage": 3,
        "dp_replicate": 1,
        "offload": "parameters",
    }
    assert not found.unread
    note = next(note for note in found.notes if "auto" in note)
    assert "train_micro_batch_size_per_gpu" in note
    assert "bf16.enabled" in note
    assert "gradient_clipping" in note


def test_reads_old_files_with_comments() -> None:
    found = TARGET.read(OLD)
    assert found.plan["offload"] == "optimizer"
    assert (found.plan["precision"], found.plan["tp"], found.plan["sequence_parallel"]) == ("bf16", 4, False)
    assert found.plan["global_batch_size"] == 1024
    assert set(found.unread) == {"zero_optimization.overlap_comm", "elasticity.enabled", "nvme_thing"}
    assert "wandb.project" in found.ignored


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"train_batch_size": "many"}', "train_batch_size"),
        ('{"train_batch_size": 0}', "at least 1"),
        ('{"zero_optimization": {"stage": 4}}', "0, 1, 2 or 3"),
        ('{"bf16": {"enabled": true}, "fp16": {"enabled": true}}', "one of them"),
        ('{"bf16": {"enabled": 3}}', "true or false"),
        ('{"optimizer": {"type": 3}}', "text is expected"),
        ('{"sequence_parallel_size": 1.5}', "whole number"),
        ("[1]", "mapping"),
        ("{", "deepspeed config"),
    ],
)
def test_unusable_files(text: str, named: str) -> None:
    with pytest.raises((InvalidInput, UnreadableFile), match=named):
        TARGET.read(text)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        (
            '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}',
            "zero_optimization.offload_param.device",
        ),
        (
            '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3}}}',
            "zero_optimization.offload_optimizer.ratio",
        ),
        ('{"optimizer": {"type": "OneBitAdam"}}', "optimizer.type"),
        ('{"torch_autocast": {"enabled": true}}', "torch_autocast.enabled"),
        ('{"pipeline": {"stages": 4, "partition": "parameters"}}', "pipeline.partition"),
        ('{"compression_training": {"weight_quantization": {"x": 1}}}', "compression_training.weight_quantization.x"),
    ],
)
def test_what_no_plan_holds_is_named(text: str, unread: str) -> None:
    assert unread in TARGET.read(text).unread


def variants(version: str) -> list[Job]:
    """What neither searches nor drawn plans have."""
    base = best(asked("llama-3.1-8b", "deepspeed", *SMALL, version=version), "tp=1", "zero_stage=3", top=1)[0]
    full = {"recompute": "full", "recomputed_layers_per_stage": (32,)}
    changes: list[dict[str, Any]] = [
        {"offload": "optimizer"},
        {"offload": "parameters"},
        {"offload": "activations", **full},
        {"zero_plus": ("qwz", "hpz", "qgz")},
        {"precision": "fp16", "gradient_dtype": "fp16"},
        {"precision": "fp32"},
        {"fsdp_prefetch": 0},
        *({"optimizer": name} for name in OPTIMIZERS),
    ]
    if version == "0.18":
        changes.append({"dp_replicate": 2, "dp_shard": base.plan.dp // 2})
    else:
        changes.append({"precision": "bf16-pure", "gradient_dtype": "bf16"})
    return [changed(base, **change) for change in changes]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a release was asked, files and splits in one process, as it takes longest to import it; and its answers."""

    jobs: list[Job]
    cases: list[dict[str, Any]]
    answers: list[Any]
    splits: list[Any]


SHAPES = [(layers, stages) for layers in (32, 56, 61, 94) for stages in (2, 4, 7, 8)]


@pytest.fixture(scope="module", params=releases.known("deepspeed", "0.18.2", "0.19.8"))
def answered(request: pytest.FixtureRequest, exported: list[Job]) -> Answered:
    version = request.param.rpartition(".")[0]
    jobs = [job for job in exported if job.plan.framework_version == version]
    assert len(jobs) > 20
    jobs += variants(version)
    cases = [
        {
            "text": TARGET.write(job, None).files[0].text,
            "world": job.plan.devices_used,
            "tp": job.plan.tp,
            "pp": job.plan.pp,
            "cp": job.plan.cp,
        }
        for job in jobs
    ]
    splits = [{"layers": layers, "stages": stages} for layers, stages in SHAPES]
    answers = releases.ask("deepspeed", request.param, [*cases, *splits])
    return Answered(jobs=jobs, cases=cases, answers=answers[: len(cases)], splits=answers[len(cases) :])


@pytest.mark.slow
def test_deepspeed_takes_every_file(answered: Answered) -> None:
    """DeepSpeed's own configuration reads the file, and reads what the plan says."""
    for job, case, answer in zip(answered.jobs, answered.cases, answered.answers, strict=True):
        plan = job.plan
        assert answer["refused"] is None, (case["text"], answer["refused"])
        assert answer["batch"] == [plan.global_batch_size, plan.micro_batch_size, plan.num_microbatches]
        assert answer["zero"]["stage"] == plan.zero_stage
        assert answer["tp"] == (plan.tp if plan.tp > 1 else 0)
        assert answer["ep"] == plan.ep
        # What was written has come through, none of it as an unknown key.
        written = dotted(json.loads(case["text"])["zero_optimization"])
        assert {name: dotted(answer["zero"])[name.removeprefix("stage3_")] for name in written} == written


@pytest.mark.slow
def test_deepspeed_splits_pipelines_so(answered: Answered) -> None:
    """``split`` is what DeepSpeed's own partition of layers and two ends without weight comes to."""
    assert [tuple(answer) for answer in answered.splits] == [split(*shape) for shape in SHAPES]
