"""Every reader takes whatever it is given: what it can't use it names, and it never breaks off with a traceback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costmodel.errors import InvalidInput
from planner.export.reading import Read
from planner.export.targets import TARGETS, load_target

_HUGE = "9" * 5000
_VALUES = (
    "0",
    "-1",
    "1.5",
    "1e400",
    ".nan",
    ".inf",
    "-.inf",
    "\u00b2",
    "\u0663",
    _HUGE,
    "999999999999999",
    "10000000000000000",
    "0x" + "f" * 5000,
    "''",
    "a,b",
    "true",
    "null",
    "[]",
    "{}",
    "[[1], {}]",
    "[1, 2]",
    "2026-13-01",
    "!!bool [",
    "!!int x",
    "*none",
    "$VARIABLE",
    "${A:-}",
    "$((1+",
    "(",
    ")",
    "'",
    "\\",
    "\x00",
    "one two",
)

# A small configuration in every target's own form: settings of which one after the other takes a hostile value.
_MEGATRON = (
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "vocab-size",
    "max-position-embeddings",
    "seq-length",
    "num-experts",
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "num-layers-per-virtual-pipeline-stage",
    "num-virtual-stages-per-pipeline-rank",
    "expert-model-parallel-size",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
    "pipeline-model-parallel-layout",
    "recompute-granularity",
    "recompute-num-layers",
    "recompute-num-layers-of-stages",
    "recompute-modules",
    "cp-comm-type",
    "hierarchical-context-parallel-sizes",
    "moe-expert-capacity-factor",
    "micro-batch-size",
    "global-batch-size",
    "nnodes",
    "nproc-per-node",
    "cpu-offloading-num-layers",
    "exp-avg-dtype",
    "fp8-recipe",
)
_SHAPE = {
    "num-layers": "8",
    "hidden-size": "1024",
    "num-attention-heads": "8",
    "vocab-size": "32000",
    "max-position-embeddings": "4096",
    "num-experts": "8",
    "pipeline-model-parallel-size": "2",
    "context-parallel-size": "2",
    "cp-comm-type": "a2a+p2p",
    "recompute-granularity": "full",
    "recompute-method": "block",
    "recompute-num-layers": "1",
}
_BRIDGE = {
    f"model.{name.replace('-', '_')}": value for name, value in _SHAPE.items() if name != "num-experts"
} | dict.fromkeys(
    (
        "model.num_moe_experts",
        "model.tensor_model_parallel_size",
        "model.virtual_pipeline_model_parallel_size",
        "model.hierarchical_context_parallel_sizes",
        "model.recompute_modules",
        "model.cpu_offloading_num_layers",
        "model.moe_expert_capacity_factor",
        "train.micro_batch_size",
        "train.global_batch_size",
        "dataset.sequence_length",
        "model.num_layers_in_first_pipeline_stage",
        "model.pipeline_model_parallel_layout",
        "mixed_precision",
    ),
    "1",
)
_NEMO = {
    f"{'data' if part == 'train' else 'trainer.strategy' if 'parallel' in name else 'model.config'}.{name}": value
    for part, _, name, value in ((*key.partition("."), value) for key, value in _BRIDGE.items())
    if part in ("model", "train")
} | {"trainer.num_nodes": "2", "trainer.devices": "8", "trainer.plugins": "x", "trainer.callbacks": "null"}
_TORCHTITAN = {
    "model.name": '"llama3"',
    "model.flavor": '"8B"',
    "model.converters": "[]",
    "compile.components": "[]",
    "compile.enable": "true",
    "parallelism.pipeline_parallel_degree": "2",
    "parallelism.pipeline_parallel_schedule": '"Interleaved1F1B"',
    "parallelism.module_fqns_per_model_part": "[]",
    "parallelism.pipeline_parallel_layers_per_stage": "4",
    "parallelism.pipeline_parallel_first_stage_less_layers": "1",
    "parallelism.tensor_parallel_degree": "2",
    "parallelism.data_parallel_shard_degree": "-1",
    "training.local_batch_size": "2",
    "training.global_batch_size": "-1",
    "training.seq_len": "8192",
    "training.dtype": '"float32"',
    "activation_checkpoint.selective_ac_option": '"2"',
    "training.batch_size": "2",
    "experimental.context_parallel_degree": "2",
    "float8.enable_float8_linear": "true",
}
_YAML = {
    "deepspeed": (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization.stage",
        "bf16.enabled",
        "optimizer.type",
        "zero_optimization.offload_optimizer.ratio",
        "zero_optimization.stage3_prefetch_bucket_size",
        "pipeline.stages",
        "zero_optimization.stage3_max_reuse_distance",
        "zero_optimization.mics_shard_size",
        "sequence_parallel_size",
        "tensor_parallel.autotp_size",
        "pipeline.activation_checkpoint_interval",
    ),
    "accelerate": (
        "distributed_type",
        "num_processes",
        "num_machines",
        "mixed_precision",
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_config.fsdp_version",
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.fsdp_offload_params",
        "parallelism_config.parallelism_config_tp_size",
        "parallelism_config.parallelism_config_cp_size",
    ),
    "nanotron": (
        "parallelism.dp",
        "parallelism.pp",
        "parallelism.tp",
        "parallelism.tp_mode",
        "parallelism.pp_engine",
        "tokens.sequence_length",
        "tokens.micro_batch_size",
        "optimizer.zero_stage",
        "model.dtype",
        "model.model_config.num_hidden_layers",
        "model.model_config.hidden_size",
    ),
    "maxtext": (
        "per_device_batch_size",
        "ici_pipeline_parallelism",
        "num_layers_per_pipeline_stage",
        "base_emb_dim",
        "num_pipeline_microbatches",
        "num_pipeline_repeats",
        "capacity_factor",
        "gradient_accumulation_steps",
        "ici_tensor_parallelism",
        "dcn_data_parallelism",
        "remat_policy",
        "dtype",
        "base_num_decoder_layers",
    ),
}
_MAXTEXT = "ici_pipeline_parallelism: 2\n"


def _texts(target: str) -> Iterator[str]:
    for value in _VALUES:
        if target == "megatron-lm":
            for flag in _MEGATRON:
                told = {name: given for name, given in _SHAPE.items() if name != flag}
                yield f"torchrun x.py {' '.join(f'--{name} {given}' for name, given in told.items())} --{flag} {value}"
        elif target in ("megatron-bridge", "nemo"):
            settings = _BRIDGE if target == "megatron-bridge" else _NEMO
            for key in settings:
                yield " ".join(f"{name}={value if name == key else given}" for name, given in settings.items())
        elif target == "torchtitan":
            for key in _TORCHTITAN:
                told = _TORCHTITAN | {key: value}
                yield "".join(f"{name} = {given}\n" for name, given in told.items())
                yield f"torchrun train.py --model.name llama3 --model.flavor 8B --{key} {value}"
                yield f"config = llama3_8b()\nconfig.{key} = {value}\n"
        else:
            for key in _YAML[target]:
                *sections, last = key.split(".")
                indented = [f"{'  ' * depth}{part}:" for depth, part in enumerate(sections)]
                lead = _MAXTEXT if target == "maxtext" and key != "ici_pipeline_parallelism" else ""
                yield lead + "\n".join([*indented, f"{'  ' * len(sections)}{last}: {value}", ""])


_BOMB = "a0: &a0 {x: 1, y: 2}\n" + "".join(f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 60))
_STRUCTURES = (
    "",
    "-",
    "{",
    "[",
    "\x00",
    "---\n---\n",
    "a: &x {b: *x}",
    "a: &x [*x]",
    "model: &x {b: *x}",
    "trainer: &x {b: *x}",
    "model: {b: &y [*y]}",
    "[" * 3000,
    '{"a":' * 3000,
    '{"model":' * 3000,
    "model: " + "[" * 3000,
    _BOMB,
    "model:\n  x: 1\n" + _BOMB,
    "model = " + "[" * 3000,
    "config.a.b = " + "1+" * 3000 + "1",
    "config.a.b = " + "(" * 300 + ")" * 300,
    "model: {a: 1, a: 2}",
    "--a " * 5,
    "--=",
    "$" * 100,
    "${" * 100,
    "a=(" * 100,
    "A=$A\nB=$A$A\n--x $B",
    "? [a, b]\n: 1",
    "1: 2",
)


def _readers() -> list[str]:
    return [target.name for target in TARGETS if target.read is not None]


def _read(target: str, text: str) -> Read | InvalidInput:
    read = load_target(target).read
    assert read is not None
    try:
        return read(text)
    except InvalidInput as error:
        return error


@pytest.mark.parametrize("target", _readers())
def test_hostile_values_are_read_or_refused(target: str) -> None:
    answers = [_read(target, text) for text in _texts(target)]
    answers += [_read(target, text) for text in _STRUCTURES]
    assert any(isinstance(found, Read) for found in answers)
    assert any(isinstance(found, InvalidInput) for found in answers)
    assert all(len(str(found)) < 2000 for found in answers if isinstance(found, InvalidInput))
    for found in answers:
        if isinstance(found, Read):
            assert all(len(value) <= 10_000 for value in found.plan.values() if isinstance(value, list | tuple))


_EXCHANGE = "--cp-comm-type a2a+p2p --context-parallel-size 4 --hierarchical-context-parallel-sizes"
_PIPELINE = "--num-layers {} --pipeline-model-parallel-size {} "


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("megatron-lm", "--nnodes \u00b2 --nproc-per-node 8"),
        ("megatron-lm", f"{_EXCHANGE} a b"),
        ("megatron-lm", f"{_EXCHANGE} 1e400 2"),
        ("megatron-lm", "--num-layers 8 --recompute-granularity full --recompute-num-layers-of-stages ''"),
        (
            "megatron-lm",
            "--num-layers 8 --recompute-granularity full --recompute-method block --recompute-num-layers-of-stages a",
        ),
        ("megatron-lm", _PIPELINE.format(0, 999999999999999)),
        ("megatron-lm", _PIPELINE.format(999999999999999, 999999999999999)),
        ("megatron-lm", f"{_PIPELINE.format(8, 999999999999999)} --decoder-first-pipeline-num-layers 8"),
        ("megatron-bridge", "model.cp_comm_type=[[1],{}] model.context_parallel_size=2"),
        (
            "torchtitan",
            "[model]\nname = 'llama3'\nflavor = '8B'\n[parallelism]\npipeline_parallel_degree = 1000000000000\n"
            "pipeline_parallel_schedule = 'Interleaved1F1B'\n",
        ),
        ("torchtitan", "[model]\nconverters = 3\n"),
        ("torchtitan", "[compile]\ncomponents = 3\n"),
        ("maxtext", "per_device_batch_size: .nan"),
        ("maxtext", "per_device_batch_size: .inf"),
        ("maxtext", "ici_pipeline_parallelism: 999999999999\nnum_layers_per_pipeline_stage: 1"),
    ],
)
def test_values_that_broke_readers(target: str, text: str) -> None:
    """They are refused, or told as unread, or say no more than they can."""
    found = _read(target, text)
    if isinstance(found, Read):
        assert {"recomputed_layers_per_stage", "cp_a2a_degree"} & set(found.plan) == set()
        assert found.unread or "devices_used" not in found.plan


@pytest.mark.parametrize("target", ["megatron-bridge", "nemo", "deepspeed", "accelerate", "nanotron", "maxtext"])
def test_documents_that_hold_themselves_are_refused(target: str) -> None:
    section = {"megatron-bridge": "model", "nemo": "trainer"}.get(target, "a")
    for text in (f"{section}: &x {{b: *x}}", f"{section}: {{b: 1}}\n{_BOMB}", '{"model":' * 3000):
        assert isinstance(_read(target, text), InvalidInput)
