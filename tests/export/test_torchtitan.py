"""Plans as torchtitan's recipes and TOML files, and back."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.recompute_modules import selective_modules
from costmodel.spec.model import Moe
from costmodel.spec.plan import Plan
from planner.check.question import CheckQuestion
from planner.export.job import Job
from planner.export.reading import Read
from planner.export.torchtitan import TARGET
from planner.export.torchtitan.flavours import flavours
from planner.export.torchtitan.toml import toml_of
from planner.launching import check_configuration
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told, with_model
from tests.plans import finished, slugs
from tests.scenarios import plan_row

# Pins that make searches short; the best plans without them take a way of their own (ZBVZeroBubble, DualPipeV).
PINS = {
    "llama-3.1-405b": ("tp=8", "cp=1", "pp=8"),
    "deepseek-v3": ("tp=1", "cp=1", "pp=1"),
    "qwen3-235b-a22b": ("tp=1", "cp=1", "pp=4"),
    "mixtral-8x22b": ("tp=1", "cp=1", "pp=1"),
    "llama-3.1-8b": (),
}
# Recipe of precision, with what goes along.
PRECISIONS = (("bf16", None), ("fp8-rowwise", None), ("bf16-pure", "bf16"), ("fp32", None), ("fp8", None))
DRAWS = 250


@pytest.fixture(scope="module")
def searched() -> dict[str, list[Job]]:
    sizes = samples.MODELS | {"deepseek-v3": (2048, 2048, 4096)}
    return {name: best(asked(name, "torchtitan", *size), *PINS[name], top=1) for name, size in sizes.items()}


def _drawn(model: str, version: str, seed: int) -> Iterator[Job]:
    draw = random.Random(seed)
    for _ in range(DRAWS):
        precision, dtype = draw.choice(PRECISIONS)
        scenario = asked(model, "torchtitan", 64, 256, 4096, version=version, precision=precision)
        moe = scenario.model.moe is not None
        tp, cp, pp = draw.choice([1, 1, 2, 4]), draw.choice([1, 1, 2, 4]), draw.choice([1, 1, 2, 4])
        ep = draw.choice([1, 2, 8]) if moe else 1
        dp, zero = 64 // (tp * cp * pp), draw.choice([0, 2, 3, 3, 3])
        axes = {
            "tp": tp,
            "cp": cp,
            "pp": pp,
            "dp": dp,
            "ep": ep,
            "etp": (tp if ep == 1 else 1) if moe else 1,
            "zero_stage": zero,
            "dp_replicate": dp if zero == 0 else draw.choice([1, 1, 2]),
            "vpp": draw.choice([1, 2]) if pp > 1 else 1,
            "layout": draw.choice([0, 1, 2]) if pp > 1 else 0,
            "cp_comm_type": draw.choice([0, 1, 1]) if cp > 1 else 0,
            "micro_batch_size": draw.choice([1, 2]),
            "recompute": draw.choice([0, 1, 2]),
        }
        if 256 % (dp * axes["micro_batch_size"]) or dp % axes["dp_replicate"]:
            continue
        plan = finished(scenario, plan_row(256, **axes))
        fields: dict[str, Any] = {"gradient_sync": "step" if pp > 1 else "microbatch"}
        fields |= {"offload": draw.choice(["none", "none", "parameters"]), "tp_overlap": tp == 1 or draw.random() < 0.7}
        fields |= {"gradient_dtype": dtype or "fp32", "cp_balanced": cp == 1 or draw.random() < 0.7}
        if zero == 3:
            fields["reshard_after"] = draw.choice(["forward", "step" if pp > 1 else "backward"])
        if pp > 1:
            two = ["interleaved_1f1b", "zb_v", "dualpipe_v"]
            fields["schedule"] = draw.choice(two if plan.vpp == 2 else ["1f1b", "gpipe"])
        if moe:
            fields["moe_dispatcher"] = draw.choice(["deduplicated", "all_to_all"])
        if plan.recompute == "full":
            fields["recomputed_layers_per_stage"] = plan.layers_per_stage
        if plan.recompute == "selective":
            fields["recompute_modules"] = selective_modules(scenario)
        plan = plan.model_copy(update=fields)
        if not slugs(plan, scenario):
            yield Job(scenario=scenario, plan=Plan(**plan.model_dump()))


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    kinds = (("llama-3.1-8b", "0.3"), ("llama-3.1-8b", "0.2"), ("qwen3-30b-a3b", "0.3"), ("deepseek-v2-lite", "0.2"))
    return [job for seed, (model, version) in enumerate(kinds) for job in _drawn(model, version, seed)]


@pytest.fixture(scope="module")
def exported(searched: dict[str, list[Job]], drawn: list[Job]) -> list[Job]:
    """Those that torchtitan can be told."""
    jobs = [job for found in searched.values() for job in found] + drawn
    return [job for job in jobs if told(TARGET, job).launch is not None]


def text_of(job: Job, version: str | None = None) -> str:
    return TARGET.write(job, version).files[0].text


def toml_of_job(job: Job) -> dict[str, Any]:
    return tomllib.loads(text_of(job, "0.2"))


def read(text: str) -> Read:
    assert TARGET.read is not None
    return TARGET.read(text)


def arguments_of(job: Job, version: str | None = None) -> list[str]:
    assert TARGET.program is not None
    return list(TARGET.program(job, version).arguments)


@cache
def _plain() -> Job:
    scenario = asked("llama-3.1-8b", "torchtitan", 64, 256, 8192)
    return best(scenario, "tp=1", "cp=1", "pp=1", "zero_stage=3", "micro_batch_size=1", top=1)[0]


def base(**fields: Any) -> Job:
    """One plan of Llama 3.1 8B: FSDP over all ranks, four micro-batches of one sequence."""
    return changed(_plain(), **fields)


def test_best_plans_are_said_or_refused_for_what_torchtitan_lacks(searched: dict[str, list[Job]]) -> None:
    for name, jobs in searched.items():
        assert jobs, name
        refused = {field for job in jobs for field in told(TARGET, job).refused}
        assert refused == ({"model.name"} if name == "mixtral-8x22b" else set()), name


def test_samples_are_of_all_kinds(exported: list[Job]) -> None:
    kinds = Counter[str]()
    for job in exported:
        plan = job.plan
        kinds.update(f"{axis}>1" for axis in ("tp", "cp", "pp", "vpp", "ep", "dp_replicate") if getattr(plan, axis) > 1)
        kinds.update([f"zero {plan.zero_stage}", plan.reshard_after, plan.recompute, plan.precision])
        kinds.update([plan.framework_version, plan.offload, f"balanced {plan.cp_balanced}", plan.moe_dispatcher])
    wanted = {"tp>1", "cp>1", "pp>1", "vpp>1", "ep>1", "dp_replicate>1", "zero 0", "zero 2", "zero 3", "forward"}
    wanted |= {"step", "none", "selective", "full", "bf16", "bf16-pure", "fp8", "fp8-rowwise", "fp32", "0.2", "0.3"}
    assert wanted | {"parameters", "balanced False", "all_to_all", "deduplicated"} <= set(kinds), kinds


def test_round_trip(exported: list[Job]) -> None:
    for job in exported:
        found = read(text_of(job))
        assert not found.unread
        assert found.model is not None
        # TOML has no null: what switches the balance off is an argument.
        alone = {} if job.plan.cp_balanced or job.plan.framework_version != "0.2" else {"cp_balanced": False}
        same: dict[str, Any] = {}
        # never without a pipeline: gathered once for both passes, which stage 2 and 3 have in common
        if job.plan.zero_stage == 3 and job.plan.reshard_after == "backward":
            same = {"zero_stage": 2, "reshard_after": "forward"}
        back = samples.read_back(job, Read(plan={**found.plan, **alone}))
        wanted = job.plan.model_copy(update=same).model_dump()
        assert {n: v for n, v in back.model_dump().items() if v != wanted[n]} == {}, job.plan


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    def nothing(plan: Plan, field: str) -> bool:
        # One micro-batch is reduced once either way; stages 2 and 3 without a pipeline gather alike.
        alike = {"gradient_sync": plan.num_microbatches == 1, "zero_stage": plan.pp == 1 and plan.zero_stage in (2, 3)}
        return samples.means_nothing(plan, field) or alike.get(field, False)

    for job in samples.one_of_each_kind(exported):
        assert samples.silent(TARGET, job, nothing) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sliding_window", 4096),
        ("qk_norm", "head"),
        ("qkv_bias", True),
        ("tie_word_embeddings", True),
        ("norms_per_layer", 4),
        ("attention_sinks", True),
        ("num_mtp_layers", 1),
        ("vocab_size", 32000),
    ],
)
def test_a_model_that_is_no_flavour_is_refused_by_what_sets_it_apart(field: str, value: Any) -> None:
    more = {"num_sliding_layers": 32} if field == "sliding_window" else {}
    job = with_model(base(pp=1), **{field: value}, **more)
    if field == "num_mtp_layers":
        job = changed(
            job, cp=2, dp=32, dp_shard=32, num_microbatches=2 * job.plan.num_microbatches, cp_comm_type="all_gather"
        )
    assert f"model.{field}" in told(TARGET, job).refused


def test_another_shape_is_refused_with_the_arguments_of_a_flavour_of_ones_own() -> None:
    with pytest.raises(InvalidInput, match=r"dim=6144, n_layers=56, n_heads=48.*num_experts=8, top_k=2"):
        TARGET.write(with_model(base(), **load_model("mixtral-8x22b").model_dump()), None)
    sparse = with_model(base(), moe=Moe(num_experts=8, top_k=2, expert_ffn_hidden_size=14336).model_dump())
    assert told(TARGET, sparse).refused[0] == "model.moe"


def test_models_are_known_by_their_shape() -> None:
    other = with_model(base(seq_len=8192), name="my model", max_position_embeddings=8192)
    assert 'model_registry("8B"' in text_of(other)
    assert toml_of_job(other)["model"] == {"name": "llama3", "flavor": "8B"}


def test_versions() -> None:
    job = base()
    assert TARGET.versions == ("0.2", "0.3")
    assert TARGET.write(job, None).version == "0.3"
    assert TARGET.write(changed(job, framework_version="0.2"), None).version == "0.2"
    later = TARGET.write(changed(job, framework_version="2026-08"), None)
    assert later.version == "0.3"
    assert "the plan is for torchtitan 2026-08; this is written for 0.3" in later.notes
    with pytest.raises(UnknownName, match=r"0\.2, 0\.3"):
        TARGET.write(job, "0.1")
    ring = changed(job, cp=2, dp=32, dp_shard=32, num_microbatches=2 * job.plan.num_microbatches, cp_comm_type="p2p")
    assert told(TARGET, ring, "0.3").refused == ("cp_comm_type",)
    assert toml_of_job(ring)["parallelism"]["context_parallel_rotate_method"] == "alltoall"


def test_what_0_2_can_t_run() -> None:
    pipelined = best(asked("qwen3-30b-a3b", "torchtitan", 64, 256, 4096), "pp=4", "tp=1", "cp=1", top=1)[0]
    assert told(TARGET, pipelined, "0.3").refused == ()
    assert told(TARGET, pipelined, "0.2").refused == ("pp",)
    alone = {"tp": 8, "dp": 8, "dp_replicate": 8, "dp_shard": 1, "zero_stage": 0, "num_microbatches": 32}
    unsharded = base(**alone, micro_batch_size=1, sequence_parallel=True, gradient_sync="microbatch", recompute="none")
    assert told(TARGET, changed(unsharded, recompute_modules=()), "0.3").refused == ()
    assert "precision" in told(TARGET, changed(unsharded, recompute_modules=()), "0.2").refused


def test_every_nth_layer_of_0_2() -> None:
    job = base(recompute="full", recompute_modules=(), recomputed_layers_per_stage=(10,))
    found = toml_of_job(job)["activation_checkpoint"]
    assert found == {"mode": "selective", "selective_ac_option": "3"}
    assert read(text_of(job, "0.2")).plan["recomputed_layers_per_stage"] == (10,)
    assert told(TARGET, job, "0.3").refused == ("recomputed_layers_per_stage",)


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("fp8", {"converters": ["quantize.linear.float8"]}),
        ("fp8-current", {"converters": ["quantize.linear.float8"]}),
        ("fp8-rowwise", {"converters": ["quantize.linear.float8"]}),
        ("mxfp8", {"converters": ["quantize.linear.mx"]}),
        ("bf16", {}),
    ],
)
def test_precisions_of_toml(precision: str, said: dict[str, Any]) -> None:
    job = base(precision=precision)
    assert toml_of_job(job)["model"] == {"name": "llama3", "flavor": "8B", **said}
    assert read(text_of(job, "0.2")).plan["precision"] == precision


@pytest.mark.parametrize("precision", ["fp8", "fp8-rowwise", "mxfp8", "nvfp4", "bf16-pure", "fp32"])
def test_precisions_of_recipes(precision: str) -> None:
    job = base(precision=precision, gradient_dtype="bf16" if precision == "bf16-pure" else "fp32")
    assert read(text_of(job)).plan["precision"] == precision
    assert ("Converter.Config(" in text_of(job)) == (precision not in ("bf16-pure", "fp32"))


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"precision": "fp16"}, "precision"),
        ({"precision": "fp8-current"}, "precision"),
        ({"optimizer": "muon"}, "optimizer"),
        ({"gradient_dtype": "bf16"}, "gradient_dtype"),
        ({"zero_plus": ("qwz",)}, "zero_plus"),
        ({"offload": "optimizer"}, "offload"),
        ({"gradient_sync": "step"}, "gradient_sync"),
        ({"moe_capacity_factor": 1.25}, "moe_capacity_factor"),
        ({"seq_len": 262144}, "seq_len"),
        ({"reshard_after": "step"}, "reshard_after"),
    ],
)
def test_refusals(fields: dict[str, Any], refused: str) -> None:
    assert refused in told(TARGET, base(**fields)).refused


def test_uneven_stages_of_a_v_are_named_in_the_order_of_a_micro_batch() -> None:
    pins = ("tp=8", "cp=1", "pp=8", "schedule=zb_v")
    job = best(asked("llama-3.1-405b", "torchtitan", 512, 512, 8192), *pins, top=1)[0]
    chunks = job.plan.layers_per_chunk
    assert chunks is not None
    modules = toml_of_job(job)["parallelism"]["module_fqns_per_model_part"]
    assert len(modules) == 16
    assert modules[0][0] == "tok_embeddings"
    assert modules[-1][-2:] == ["norm", "output"]
    assert [len(modules[0]) - 1, len(modules[-1]) - 2] == list(chunks[0])
    assert [len(modules[7]), len(modules[8])] == list(chunks[7])
    names = [name for part in modules for name in part if name.startswith("layers.")]
    assert names == [f"layers.{index}" for index in range(126)]
    assert any("split backward pass" in note for note in TARGET.write(job, None).notes)


def test_command_and_names() -> None:
    job = Job(scenario=base().scenario, plan=base().plan, name='a "name"\nimport os; $(touch owned) \x7f')
    launch = TARGET.write(job, None)
    assert launch.files[0].text.splitlines()[0].startswith('# a "name" import os; $(touch owned) : llama-3.1-8b')
    compile(launch.files[0].text, "recipe", "exec")
    assert "--module torchtitan_plan" in launch.command
    assert " -m torchtitan.train --module" in launch.command
    assert "owned" not in launch.command
    tomllib.loads(text_of(job, "0.2"))


def test_the_allocator_is_set_where_the_variable_is_its_own() -> None:
    """AMD's build of PyTorch does not go by the variable of CUDA."""
    assert TARGET.program is not None
    job = base()
    assert TARGET.program(job, None).environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    amd = asked("llama-3.1-8b", "torchtitan", 64, 256, 8192, cluster="mi300x-8x400g")
    assert TARGET.program(Job(scenario=amd, plan=job.plan), None).environment == {}


def test_toml_of_odd_strings() -> None:
    odd = ['quote " and \\', "line\nbreak", "\x7f", "ü 訓練"]
    assert tomllib.loads(toml_of({"a.b": odd, "a.c": [odd, odd], "a.d": True})) == {
        "a": {"b": odd, "c": [odd, odd], "d": True}
    }


TOML = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "70B"
converters = ["quantize.linear.float8"]
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
local_batch_size = 8
seq_len = 8192
steps = 1000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8 # 8-way TP
enable_async_tensor_parallel = true
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_schedule_csv = "mine.csv"
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
filter_fqns = ["output"]
"""


def test_reads_what_people_have() -> None:
    found = read(TOML)
    assert found.model is not None
    assert found.model.name == "llama-3.1-70b"
    said = {
        "tp": 8, "pp": 2, "vpp": 2, "zero_stage": 3, "reshard_after": "step", "precision": "fp8-current",
        "recompute": "full", "schedule": "interleaved_1f1b", "layers_per_chunk": ((20, 21), (21, 18)),
        "micro_batch_size": 1, "seq_len": 8192, "tp_overlap": True, "framework_version": "0.2",
    }  # fmt: skip
    said["layers_per_chunk"] = ((20, 20), (21, 19))
    assert {name: found.plan.get(name) for name in said} == said
    assert set(found.unread) == {"parallelism.pipeline_parallel_schedule_csv"}
    assert "dp_shard" not in found.plan
    assert "training.steps" in found.ignored


def test_reads_a_command_line() -> None:
    found = read(
        "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b \\\n"
        "  --parallelism.tensor-parallel-degree ${TP:-2} --training.seq_len=4096 --compile.enable \\\n"
        "  --compile.enable_async_tensor_parallel --parallelism.pipeline_parallel_degree 2 \\\n"
        "  --parallelism.module_fqns_per_model_part tok_embeddings,layers.0 layers.1,norm,lm_head \\\n"
        "  --parallelism.context_parallel_load_balancer None --training.local_batch_size $BATCH \\\n"
        "  activation-checkpoint:full"
    )
    said = {"tp": 2, "pp": 2, "seq_len": 4096, "tp_overlap": True, "layers_per_stage": (1, 1), "recompute": "full"}
    assert {name: found.plan.get(name) for name in said} == said
    assert found.model is not None
    assert found.model.name == "llama-3.1-8b"
    assert set(found.unread) == {"training.local_batch_size"}
    # What the registered recipe has by itself is not torchtitan's default.
    assert "global_batch_size" not in found.plan
    assert any("llama3_8b sets by itself" in note for note in found.notes)


def test_reads_a_recipe_of_people() -> None:
    found = read(
        "from torchtitan.models.qwen3 import model_registry\n"
        "def mine():\n"
        "    return Trainer.Config(\n"
        '        model_spec=model_registry("30B-A3B", moe_comm_backend="hybridep"),\n'
        "        training=TrainingConfig(local_batch_size=4, seq_len=4096, global_batch_size=BATCH),\n"
        "        parallelism=ParallelismConfig(expert_parallel_degree=8, data_parallel_shard_degree=16),\n"
        "        activation_checkpoint=MemoryBudgetAC.Config(memory_budget=0.3),\n"
        "    )\n"
    )
    said = {"ep": 8, "etp": 1, "dp_shard": 16, "micro_batch_size": 4, "moe_dispatcher": "deduplicated", "zero_stage": 3}
    assert {name: found.plan.get(name) for name in said} == said
    assert set(found.unread) == {"training.global_batch_size", "activation_checkpoint"}
    assert found.model is not None
    assert found.model.name == "qwen3-30b-a3b"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnreadableFile),
        ("[parallelism", UnreadableFile),
        ("def broken(:", UnreadableFile),
        ("def empty(): pass", UnreadableFile),
        ("--parallelism.tensor_parallel_degree 'two", InvalidInput),
        ("[parallelism]\ntensor_parallel_degree = 'two'", InvalidInput),
        ("[parallelism]\ntensor_parallel_degree = 0", InvalidInput),
        ("[parallelism]\nfsdp_reshard_after_forward = 3", InvalidInput),
    ],
)
def test_unusable_texts(text: str, error: type[InvalidInput]) -> None:
    with pytest.raises(error):
        read(text)


def _case(job: Job, version: str | None = None, **more: Any) -> dict[str, Any]:
    files = {file.name: file.text for file in TARGET.write(job, version).files}
    return {"files": files, "arguments": arguments_of(job, version), **more}


# Converters ask for torchao and an accelerator.
_BUILDS = ("bf16", "bf16-pure", "fp32")


@pytest.mark.slow
def test_torchtitan_0_3_takes_every_recipe(searched: dict[str, list[Job]], exported: list[Job]) -> None:
    """ConfigManager takes all of them; two of the best plans also Trainer, up to the parallelised model.

    It took those of all models when this was written (405B: 30 s, 671B: 60 s), and every flavour was counted.
    """
    first = [jobs[0] for name, jobs in searched.items() if name != "mixtral-8x22b"]
    built = ("llama-3.1-8b", "qwen3-235b-a22b")
    jobs = [job for job in exported if job.plan.framework_version == "0.3" and job.plan.precision in _BUILDS]
    cases = [_case(job, world=job.plan.devices_used if job.model.name in built else 0) for job in first]
    cases += [_case(job) for job in samples.one_of_each_kind(jobs)]
    asked_about = [*first, *samples.one_of_each_kind(jobs)]
    assert len(asked_about) > 15
    smallest = {entry.module: entry for entry in reversed(flavours())}
    known = list(smallest.values())
    counted: list[dict[str, Any]] = [{"module": f.module, "flavour": f.flavour, "arguments": {}} for f in known]
    answers = releases.ask_installed(
        "torchtitan_recipe", {"recipes": cases, "flavours": counted}, "torch", "torchtitan"
    )
    for job, answer in zip(asked_about, answers["recipes"], strict=True):
        assert answer["refused"] is None, (job.model.name, job.plan)
        plan, found = job.plan, answer["read"]
        assert found["parallelism"]["tensor_parallel_degree"] == plan.tp
        assert found["parallelism"]["data_parallel_shard_degree"] == plan.dp_shard
        assert found["parallelism"]["pipeline_parallel_degree"] == plan.pp
        assert found["training"]["global_batch_size"] == plan.global_batch_size
        kinds = {"none": "NoneType", "full": "FullAC.Config", "selective": "SelectiveAC.Config"}
        assert found["activation_checkpoint"] == kinds[plan.recompute]
    assert answers["parameters"] == [load_model(entry.model).params.total for entry in known]


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("torchtitan", "0.2.2"))
def test_torchtitan_0_2_takes_every_file(release: str, exported: list[Job]) -> None:
    jobs = samples.one_of_each_kind(job for job in exported if told(TARGET, job, "0.2").launch is not None)
    assert len(jobs) > 15
    answers = releases.ask("torchtitan", release, [_case(job, "0.2") for job in jobs], "torchtitan_toml")
    for job, answer in zip(jobs, answers, strict=True):
        assert answer["refused"] is None, job.plan
        found, plan = answer["read"], job.plan
        parallelism = found["parallelism"]
        assert (parallelism["tensor_parallel_degree"], parallelism["context_parallel_degree"]) == (plan.tp, plan.cp)
        wanted = "headtail" if plan.cp_balanced or plan.cp == 1 else None
        assert parallelism["context_parallel_load_balancer"] == wanted
        assert found["training"]["seq_len"] == plan.seq_len
        assert found["model"]["name"] in ("llama3", "qwen3", "deepseek_v3")


def test_reads_names_of_torchtitan_0_1() -> None:
    read = TARGET.read
    assert read is not None
    found = read(
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nbatch_size = 2\nseq_len = 4096\n"
        "tensor_parallel_degree = 8\n"
        "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n[experimental]\n"
        "pipeline_parallel_degree = 1\ncontext_parallel_degree = 2\n[float8]\nenable_float8_linear = true\n"
    )
    said = {"tp": 8, "dp_replicate": 2, "dp_shard": 4, "pp": 1, "cp": 2, "micro_batch_size": 2, "global_batch_size": 16}
    assert {name: found.plan.get(name) for name in said} == said
    assert found.plan["precision"].startswith("fp8")
    assert not found.unread


def test_reads_expressions_of_a_recipe() -> None:
    read = TARGET.read
    assert read is not None
    found = read("TP = 8\nconfig.parallelism.tensor_parallel_degree = TP\nconfig.training.seq_len = 2*4096\n")
    assert (found.plan["tp"], found.plan["seq_len"]) == (8, 8192)
    found = read("import os\nconfig.parallelism.tensor_parallel_degree = int(os.environ['TP']) * 2\n")
    assert set(found.unread) == {"parallelism.tensor_parallel_degree"}
    assert "tp" not in found.plan


def test_a_local_batch_is_that_of_the_devices() -> None:
    text = (
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n[parallelism]\n"
        "tensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\n"
    )
    question = CheckQuestion(plan="", model="", cluster="dgx-h100", devices=512)
    checked = check_configuration(question, "torchtitan", text)
    assert checked.answer["plan"]["global_batch_size"] == 2 * 64
