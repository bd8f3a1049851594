"""Plans as nanotron's YAML file, and back."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput, UnreadableFile
from costmodel.spec.plan import Plan
from planner.export.dotted import dotted
from planner.export.job import Job
from planner.export.nanotron import TARGET
from planner.export.nanotron.write import layers_by_cost
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told
from tests.plans import slugs

SMALL = samples.MODELS["llama-3.1-8b"]
# What the file leaves to the user, as nanotron 0.4 wants it.
REST_OF_A_RUN = """
general: {project: test, run: test, seed: 1}
tokenizer: {tokenizer_name_or_path: gpt2}
model: {init_method: {std: 0.02}}
tokens: {train_steps: 10}
optimizer:
  weight_decay: 0.1
  clip_grad: 1.0
  adam_eps: 1.0e-8
  adam_beta1: 0.9
  adam_beta2: 0.95
  torch_adam_is_fused: true
  learning_rate_scheduler: {learning_rate: 3.0e-4, lr_warmup_style: linear, lr_decay_style: cosine}
"""


def laid_out(plan: Plan, layers: tuple[int, ...]) -> dict[str, Any]:
    """With the layers as nanotron lays them."""
    full = plan.recompute == "full"
    return {"layers_per_stage": layers, "recomputed_layers_per_stage": layers if full else (0,) * len(layers)}


def as_nanotron_lays_them(job: Job) -> Job:
    return changed(job, **laid_out(job.plan, layers_by_cost(job.model, job.plan.pp)))


@pytest.fixture(scope="module")
def searched() -> dict[str, list[Job]]:
    """The best plans of every model, with the layers where nanotron puts them, which a search does not know."""
    found = {}
    for name in ("llama-3.1-405b", "llama-3.1-8b", "mixtral-8x22b"):
        jobs = [as_nanotron_lays_them(job) for job in best(asked(name, "nanotron", *samples.MODELS[name]), top=2)]
        found[name] = [job for job in jobs if not slugs(job.plan, job.scenario)]
    return found


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    found: list[Job] = []
    kinds = (("llama-3.1-8b", "0.4"), ("llama-3.1-8b", "2026-04"), ("mixtral-8x7b", "2026-04"))
    for seed, (model, version) in enumerate(kinds):
        scenario = asked(model, "nanotron", 64, 256, 4096, version=version)
        spec = scenario.model

        def change(plan: Plan, spec: Any = spec) -> dict[str, Any]:
            return {**laid_out(plan, layers_by_cost(spec, plan.pp)), "tp_overlap": plan.tp % 4 != 0}

        found += samples.drawn(scenario, 25, seed, change)
    return found


@pytest.fixture(scope="module")
def exported(searched: dict[str, list[Job]], drawn: list[Job]) -> list[Job]:
    jobs = [job for found in searched.values() for job in found] + drawn
    return [job for job in jobs if told(TARGET, job).launch is not None]


def config_of(job: Job, version: str | None = None) -> dict[str, Any]:
    return yaml.safe_load(TARGET.write(job, version).files[0].text)


def test_best_plans(searched: dict[str, list[Job]]) -> None:
    for name, jobs in searched.items():
        assert jobs, name
        assert [told(TARGET, job).refused for job in jobs] == [()] * len(jobs), name


def test_models_that_nanotron_does_not_build() -> None:
    """Heads of another width than hidden_size / num_heads with norms of their own; latent attention."""
    base = best(asked("llama-3.1-8b", "nanotron", *SMALL), "pp=1", top=1)[0]
    for name, parts in {
        "qwen3-235b-a22b": {"model.head_dim", "model.qk_norm"},
        "deepseek-v3": {"model.mla", "model.num_mtp_layers", "model.moe.num_dense_layers", "model.moe.num_groups"},
    }.items():
        other = Job(scenario=base.scenario.model_copy(update={"model": load_model(name)}), plan=base.plan)
        assert parts <= set(told(TARGET, other).refused)


def test_samples_are_of_all_kinds(exported: list[Job]) -> None:
    plans = [job.plan for job in exported]
    for axis in ("tp", "cp", "pp"):
        assert any(getattr(plan, axis) > 1 for plan in plans), axis
    assert {plan.zero_stage for plan in plans} == {0, 1}
    assert {plan.recompute for plan in plans} == {"none", "full"}
    assert {plan.framework_version for plan in plans} == {"0.4", "2026-04"}
    assert {plan.cp_comm_type for plan in plans} == {"p2p", "all_gather"}


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
    for name in ("llama-3.1-8b", "mixtral-8x7b"):
        job = next(job for job in exported if job.model.name == name and job.plan.pp == 1 and job.plan.cp == 1)
        assert samples.silent_about_model(TARGET, job) == []


def test_what_is_written() -> None:
    base = best(asked("llama-3.1-8b", "nanotron", *SMALL), "pp=1", "tp=2", "cp=2", top=1)[0]
    found = config_of(base)
    assert found["parallelism"]["tp_mode"] == "REDUCE_SCATTER"
    assert found["parallelism"]["context_parallel_size"] == 2
    assert found["model"]["model_config"]["is_qwen2_config"] is True
    ring = config_of(changed(base, cp_comm_type="p2p"))["model"]["model_config"]["_attn_implementation"]
    gathers = config_of(changed(base, cp_comm_type="all_gather"))["model"]["model_config"]["_attn_implementation"]
    assert (ring, gathers) == ("ring", "llama3_ring_attention")
    assert told(TARGET, changed(base, framework_version="0.4")).refused[:1] == ("cp",)
    whole = config_of(changed(base, sequence_parallel=False, tp_overlap=False))["parallelism"]
    assert (whole["tp_mode"], whole["tp_linear_async_communication"]) == ("ALL_REDUCE", False)


def test_layers_are_laid_by_cost() -> None:
    base = best(asked("llama-3.1-8b", "nanotron", *SMALL), "pp=2", top=1)[0]
    own = layers_by_cost(base.model, 2)
    assert sum(own) == 32
    other = changed(base, layers_per_stage=(own[0] - 1, own[1] + 1))
    assert told(TARGET, other).refused == ("layers_per_stage",)
    assert config_of(as_nanotron_lays_them(base))["parallelism"]["pp_engine"] == "1f1b"


def test_qwen_keys() -> None:
    job = best(asked("mixtral-8x7b", "nanotron", 64, 256, 4096), "tp=1", top=1)[0]
    job = as_nanotron_lays_them(job)
    assert config_of(job)["model"]["model_config"]["moe_config"] == {
        "num_experts": 8,
        "top_k": 2,
        "moe_intermediate_size": 14336,
        "enable_shared_expert": False,
    }
    assert "model.moe" in told(TARGET, job, "0.4").refused


# As examples/config_qwen.yaml of huggingface/nanotron writes it.
EXAMPLE = """
general: {project: debug, run: qwen_20250326, seed: 42}
data_stages:
- {name: Stable Training Stage, start_training_step: 1, data: {seed: 42}}
model:
  dtype: bfloat16   # 16 bits
  init_method: {std: 0.025}
  model_config: {hidden_size: 256, intermediate_size: 768, is_qwen2_config: true, max_position_embeddings: 256,
    num_attention_heads: 4, num_hidden_layers: 12, num_key_value_heads: 4, tie_word_embeddings: true, vocab_size: 49152,
    _attn_implementation: flex_attention, moe_config: null, rms_norm_eps: 1.0e-05, rope_theta: 10000.0}
optimizer:
  accumulate_grad_in_fp32: true
  learning_rate_scheduler: {learning_rate: 0.0003}
  optimizer_factory: {name: adamW, adam_beta1: 0.9}
  zero_stage: 0
parallelism: {context_parallel_size: 1, dp: 2, expert_parallel_size: 1, moe_layer_recompute: false, pp: 2,
  pp_engine: 1f1b, recompute_layer: true, tp: 2,
  tp_linear_async_communication: true, tp_mode: REDUCE_SCATTER, tp_recompute_allgather: true}
tokens: {batch_accumulation_per_replica: 4, micro_batch_size: 3, sequence_length: 8192, train_steps: 15}
"""


def test_reads_an_example() -> None:
    found = TARGET.read(EXAMPLE)
    assert found.plan == {
        "framework": "nanotron",
        "dp": 2,
        "tp": 2,
        "pp": 2,
        "cp": 1,
        "ep": 1,
        "sequence_parallel": True,
        "tp_overlap": True,
        "schedule": "1f1b",
        "recompute": "full",
        "layers_per_stage": (12, 0),  # 12 layers cost less than half of all with the head
        "seq_len": 8192,
        "micro_batch_size": 3,
        "num_microbatches": 4,
        "global_batch_size": 24,
        "zero_stage": 0,
        "optimizer": "adamw",
        "precision": "bf16",
        "gradient_dtype": "fp32",
    }
    assert found.model is not None
    assert found.model.hidden_size == 256
    assert list(found.unread) == ["parallelism.tp_recompute_allgather"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("parallelism: {tp: many}", "tp"),
        ("parallelism: {tp: 2, tp_mode: SHUFFLE}", "ALL_REDUCE or REDUCE_SCATTER"),
        ("parallelism: {pp: 2, pp_engine: zb}", "1f1b or afab"),
        ("parallelism: {recompute_layer: 2}", "true or false"),
        ("- 1", "mapping"),
        ("a: [", "nanotron config"),
    ],
)
def test_unusable_files(text: str, named: str) -> None:
    with pytest.raises((InvalidInput, UnreadableFile), match=named):
        TARGET.read(text)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("optimizer: {accumulate_grad_in_fp32: false}", "optimizer.accumulate_grad_in_fp32"),
        ("optimizer: {optimizer_factory: {name: sgd}}", "optimizer.optimizer_factory.name"),
        ("model: {dtype: int8}", "model.dtype"),
        ("model: {model_config: {is_mamba_config: true}}", "model.model_config"),
        ("parallelism: {sp: 2}", "parallelism.sp"),
    ],
)
def test_what_no_plan_holds_is_named(text: str, unread: str) -> None:
    assert unread in TARGET.read(text).unread


def test_command() -> None:
    base = best(asked("llama-3.1-8b", "nanotron", *SMALL), "pp=1", top=1)[0]
    launch = TARGET.write(base, None)
    assert launch.command == (
        "CUDA_DEVICE_MAX_CONNECTIONS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
        'torchrun --nnodes 8 --nproc-per-node 8 --node-rank "$NODE_RANK" '
        '--rdzv-backend static --rdzv-endpoint "$MASTER_ADDR":29500 run_train.py --config-file nanotron.yaml "$@"'
    )
    assert any("learning rate" in note for note in launch.notes)


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("nanotron", "0.4"))
def test_nanotron_takes_every_file(release: str, exported: list[Job]) -> None:
    """nanotron's own dataclasses hold the file with the rest of a run, without a key that they don't know.

    The version of 2026-04 is no release and can't be installed from an index: its keys were read.
    """
    jobs = [job for job in exported if job.plan.framework_version == release]
    assert len(jobs) > 10
    cases = [{"text": TARGET.write(job, None).files[0].text, "rest": REST_OF_A_RUN} for job in jobs]
    for job, case, answer in zip(jobs, cases, releases.ask("nanotron", release, cases), strict=True):
        assert answer["refused"] is None, (case["text"], answer["refused"])
        assert answer["global_batch_size"] == job.plan.global_batch_size
        for name, value in dotted(yaml.safe_load(case["text"])).items():
            assert dotted(answer["config"])[name] == value, name
