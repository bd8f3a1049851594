"""Plans as MaxText's YAML file, and back."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import yaml

from costmodel.errors import InvalidInput, UnreadableFile
from costmodel.recompute_modules import selective_modules
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.maxtext import TARGET
from planner.export.maxtext.mesh import slices_of
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told

SMALL = samples.MODELS["llama-3.1-8b"]
TPUS = "tpu-v5p"


@pytest.fixture(scope="module")
def searched() -> dict[str, list[Job]]:
    return {name: best(asked(name, "maxtext", *sizes), "pp=1", top=2) for name, sizes in samples.MODELS.items()}


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    """Legal plans with the modules of MaxText's policy, and pipelines, whose schedule is not drawn."""
    small = asked("llama-3.1-8b", "maxtext", *SMALL)
    found = [job for pin in ("pp=2", "pp=4") for job in best(small, pin, "cp=1", top=2)]
    for seed, model in enumerate(("llama-3.1-8b", "mixtral-8x7b", "qwen3-8b")):
        scenario = asked(model, "maxtext", 64, 256, 4096)
        modules = selective_modules(scenario)

        def change(plan: Plan, modules: tuple[str, ...] = modules) -> dict[str, Any]:
            return {
                "recompute_modules": modules if plan.recompute == "selective" else (),
                "sequence_parallel": plan.tp % 4 == 0,
            }

        found += samples.drawn(scenario, 20, seed, change)
    return found


@pytest.fixture(scope="module")
def exported(searched: dict[str, list[Job]], drawn: list[Job]) -> list[Job]:
    jobs = [job for found in searched.values() for job in found] + drawn
    return [job for job in jobs if told(TARGET, job).launch is not None]


def config_of(job: Job) -> dict[str, Any]:
    return yaml.safe_load(TARGET.write(job, None).files[0].text)


def test_best_plans_of_every_model_are_said(searched: dict[str, list[Job]]) -> None:
    for name, jobs in searched.items():
        assert jobs, name
        for job in jobs:
            assert told(TARGET, job).refused == (), name


def test_samples_are_of_all_kinds(exported: list[Job]) -> None:
    plans = [job.plan for job in exported]
    for axis in ("tp", "cp", "pp", "ep", "dp_replicate"):
        assert any(getattr(plan, axis) > 1 for plan in plans), axis
    assert {plan.zero_stage for plan in plans} == {0, 1, 3}
    assert {plan.recompute for plan in plans} == {"none", "selective", "full"}


def test_round_trip(exported: list[Job]) -> None:
    for job in exported:
        found = TARGET.read(TARGET.write(job, None).files[0].text)
        assert not found.unread
        assert samples.read_back(job, found) == job.plan
        assert found.model is not None
        assert found.model.params == job.model.params


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    for job in samples.one_of_each_kind(exported):
        assert samples.silent(TARGET, job, samples.means_nothing) == []


def test_every_feature_of_a_model_shows(exported: list[Job]) -> None:
    for name in ("llama-3.1-8b", "mixtral-8x7b", "qwen3-8b", "deepseek-v3"):
        job = next(job for job in exported if job.model.name == name and job.plan.pp == 1)
        assert samples.silent_about_model(TARGET, job) == []


def test_mesh_of_experts(searched: dict[str, list[Job]]) -> None:
    job = searched["mixtral-8x22b"][0]
    plan, config = job.plan, config_of(job)
    assert plan.ep > 1
    assert plan.tp > 1
    # The expert axis is a part of dp, and lies outside of what shares a layer's products.
    assert config["ici_fsdp_parallelism"] * config["ici_expert_parallelism"] == plan.dp
    assert config["ici_tensor_sequence_parallelism"] == plan.tp
    axes = config["mesh_axes"]
    assert axes.index("fsdp") < axes.index("expert") < axes.index("context") < axes.index("tensor_sequence")


def test_pipelines_take_their_micro_batches_at_once(exported: list[Job]) -> None:
    job = next(job for job in exported if job.plan.pp > 1)
    plan, config = job.plan, config_of(job)
    assert config["num_pipeline_microbatches"] == plan.num_microbatches
    assert config["gradient_accumulation_steps"] == 1
    assert config["per_device_batch_size"] * plan.devices_used == plan.global_batch_size
    assert config["num_layers_per_pipeline_stage"] == job.model.num_layers // plan.pp


def test_slices_of_tpus() -> None:
    scenario = asked("llama-3.1-8b", "maxtext", 64, 256, 8192)
    base = best(scenario, "pp=1", top=1)[0]
    accelerator = scenario.cluster.accelerator.model_copy(update={"family": "tpu"})
    tiers = scenario.cluster.model_copy(update={"accelerator": accelerator})
    job = Job(scenario=scenario.model_copy(update={"cluster": tiers}), plan=base.plan)
    assert slices_of(job) == 8
    config = config_of(job)
    assert config["hardware"] == "tpu"
    assert config["attention"] == "flash"
    ici = prod(value for name, value in config.items() if name.startswith("ici_"))
    dcn = prod(value for name, value in config.items() if name.startswith("dcn_"))
    assert (ici, dcn) == (8, 8)
    wide = changed(job, tp=16, cp=4, dp=1, dp_shard=1, micro_batch_size=1, num_microbatches=256, zero_stage=3)
    assert "devices_used" in told(TARGET, wide).refused


def test_precisions_and_offload() -> None:
    base = best(asked("llama-3.1-8b", "maxtext", *SMALL), "tp=1", "pp=1", "recompute=full", top=1)[0]
    each = base.plan.global_batch_size // base.plan.dp
    names = ("bf16", "bf16-pure", "fp8", "mxfp8", "fp32", "tf32")
    once = changed(base, num_microbatches=1, micro_batch_size=each)
    said = {name: config_of(changed(once, precision=name)) for name in names}
    assert [said[name]["quantization"] for name in said] == ["", "", "te_fp8_delayedscaling", "te_mxfp8", "", ""]
    assert [said[name]["weight_dtype"] for name in ("bf16", "bf16-pure")] == ["float32", "bfloat16"]
    assert [said[name]["matmul_precision"] for name in ("fp32", "tf32")] == ["highest", "default"]
    several = changed(base, precision="fp8", num_microbatches=2, micro_batch_size=each // 2)
    assert told(TARGET, several).refused == ("num_microbatches",)
    assert told(TARGET, changed(base, precision="fp16")).refused == ("precision",)
    assert config_of(changed(base, offload="optimizer"))["optimizer_memory_host_offload"] is True
    assert config_of(changed(base, offload="parameters"))["parameter_memory_host_offload"] is True
    assert told(TARGET, changed(base, offload="activations")).refused == ("offload",)


def test_command() -> None:
    base = best(asked("llama-3.1-8b", "maxtext", *SMALL), "pp=1", top=1)[0]
    command = TARGET.write(base, None).command
    started = TARGET.program(base, None) if TARGET.program else None
    assert started is not None
    assert (started.module, started.script) == (True, "maxtext.trainers.pre_train.train")
    assert command.endswith('python -u -m maxtext.trainers.pre_train.train maxtext.yml "$@"')
    assert command.startswith('env JAX_COORDINATOR_IP="$MASTER_ADDR"')


# As configs/gpu/models/llama3.1_405b.yml of MaxText has it, with a mesh of somebody's.
EXAMPLE = """
base_config: "base.yml"
run_name: "gpu_train_test"
hardware: "gpu"
steps: 10
model_name: "llama3.1-405b"
remat_policy: "full"
scan_layers: true
dataset_type: "synthetic"
per_device_batch_size: 1.0   # of each device
max_target_length: 4096
dcn_fsdp_parallelism: 64
ici_fsdp_parallelism: 4
ici_tensor_parallelism: 2
custom_mesh: ring
"""


def test_reads_a_file_with_a_model_s_name() -> None:
    found = TARGET.read(EXAMPLE)
    plan = found.plan
    assert (plan["tp"], plan["sequence_parallel"], plan["zero_stage"], plan["dp_shard"]) == (2, False, 3, 256)
    assert (plan["micro_batch_size"], plan["num_microbatches"], plan["global_batch_size"]) == (2, 1, 512)
    assert (plan["recompute"], plan["seq_len"], plan["precision"]) == ("full", 4096, "bf16")
    assert found.model is None
    assert any("llama3.1-405b" in note for note in found.notes)
    assert list(found.unread) == ["custom_mesh"]


def test_what_is_left_is_open() -> None:
    """base.yml gives what is left to the fsdp axis."""
    plan = TARGET.read("per_device_batch_size: 2\nici_tensor_sequence_parallelism: 4\n").plan
    assert (plan["tp"], plan["sequence_parallel"], plan["zero_stage"]) == (4, True, 3)
    assert "dp_shard" not in plan
    assert plan["micro_batch_size"] == 8


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ici_tensor_parallelism: two", "whole number"),
        ("ici_tensor_parallelism: 0", "at least 1, or -1"),
        ("context_parallel_load_balance: 3", "true or false"),
        ("- 1", "mapping"),
        ("a: [", "maxtext config"),
    ],
)
def test_unusable_files(text: str, named: str) -> None:
    with pytest.raises((InvalidInput, UnreadableFile), match=named):
        TARGET.read(text)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("remat_policy: save_out_proj", "remat_policy"),
        ("quantization: int8", "dtype"),
        ("opt_type: sgd", "opt_type"),
        ("ici_pipeline_parallelism: 4\nnum_layers_per_pipeline_stage: 2", "num_pipeline_repeats"),
        ("context_parallel_strategy: mesh", "context_parallel_strategy"),
        ("per_device_batch_size: 0.3", "per_device_batch_size"),
        ("something_new: 1", "something_new"),
        ("base_emb_dim: 64\ndecoder_block: gpt9", "decoder_block"),
    ],
)
def test_what_no_plan_holds_is_named(text: str, unread: str) -> None:
    assert unread in TARGET.read(text).unread


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("maxtext", "0.2.5"))
def test_maxtext_takes_every_file(release: str, exported: list[Job]) -> None:
    """MaxText's own configuration takes the file over its base.yml and comes to the plan's batch and mesh."""
    cases = [
        {"text": TARGET.write(job, None).files[0].text, "devices": job.plan.devices_used, "slices": slices_of(job)}
        for job in exported
    ]
    assert len(cases) > 30
    for job, case, answer in zip(exported, cases, releases.ask("maxtext", release, cases), strict=True):
        assert answer["refused"] is None, (case["text"], answer["refused"])
        assert answer["unknown"] == []
        assert answer["global_batch_size"] == job.plan.global_batch_size
        assert prod(answer["mesh"].values()) == job.plan.devices_used
        assert answer["mesh"]["stage"] == job.plan.pp
        assert answer["layers"] == job.model.num_layers
