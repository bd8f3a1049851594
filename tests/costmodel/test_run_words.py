"""What people write in tables of runs, and what it is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.catalog.cluster_catalog import load_accelerator
from costmodel.runs import model_words, words

H100, V100, GAUDI = load_accelerator("h100-sxm5-80gb"), load_accelerator("v100-sxm2-32gb"), load_accelerator("gaudi2")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("bf16", "bf16"),
        ("BF16", "bf16"),
        ("bfloat16 mixed", "bf16"),
        ("amp_bf16", "bf16"),
        ("bf16 (fp32 grad accum+master)", "bf16"),
        ("bf16-true", "bf16"),
        ("mixed precision", "bf16"),
        ("fp16", "fp16"),
        ("float16", "fp16"),
        ("fp16/bf16", "bf16"),
        ("fp8-delayed", "fp8"),
        ("fp8-cs", "fp8-current"),
        ("fp8-blockwise", "fp8-blockwise"),
        ("float8 tensorwise + float8 all-gather", "fp8-current"),
        ("FP8 (TE)", "fp8"),
        ("float8 rowwise, bf16 all-gather", "fp8-rowwise"),
        ("pure bf16", "bf16-pure"),
        ("fp32", "fp32"),
        ("tf32", "tf32"),
    ],
)
def test_precisions_are_recognised(text: str, means: str) -> None:
    recipe, notes = words.precision_of(text, H100)
    assert recipe.name == means
    assert notes == ()


@pytest.mark.parametrize(
    ("text", "means"), [("fp8-mx", "mxfp8"), ("mxfp8_cublas_rceil", "mxfp8"), ("nvfp4", "nvfp4"), ("mxfp4", "nvfp4")]
)
def test_formats_of_blackwell_are_recognised_there(text: str, means: str) -> None:
    recipe, notes = words.precision_of(text, load_accelerator("gb300"))
    assert recipe.name == means
    assert all("nearest format" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "means", "said"),
    [
        ("nvfp4", "fp8-blockwise", "has no nvfp4"),
        ("mxfp8_cublas", "fp8-blockwise", "has no mxfp8"),
        ("int3", "bf16", "not known"),
        ("", "bf16", "blank"),
    ],
)
def test_a_precision_that_is_not_known_falls_back_and_says_so(text: str, means: str, said: str) -> None:
    recipe, notes = words.precision_of(text, H100)
    assert recipe.name == means
    assert said in notes[0]


def test_a_format_that_the_device_lacks_falls_back_to_one_that_it_has() -> None:
    recipe, notes = words.precision_of("bf16", V100)
    assert recipe.name == "fp16"
    assert "v100-sxm2-32gb has no bf16" in notes[0]
    assert words.precision_of("fp8", V100)[0].name == "fp16"


@pytest.mark.parametrize(
    ("text", "policy", "modules"),
    [
        ("none", "none", None),
        ("No", "none", None),
        ("off", "none", None),
        ("full", "full", None),
        ("Full activation checkpointing", "full", None),
        ("activation_checkpointing: full", "full", None),
        ("full-5-layers(block)", "full", None),
        ("every 2nd layer", "full", None),
        ("offload", "full", None),
        ("selective", "selective", None),
        ("selective op", "selective", None),
        ("attn only", "selective", None),
        ("sel", "selective", None),
        ("selective:core_attn", "selective", ("core_attn",)),
        ("selective:moe_act+layernorm", "selective", ("layernorm", "moe_act")),
        ("selective:mlp+mla_up_proj", "selective", ("mla_up_proj", "mlp")),
        ("core_attn", "selective", ("core_attn",)),
        ("layernorm+moe_act", "selective", ("layernorm", "moe_act")),
        ("[moe_act, mla_up_proj]", "selective", ("moe_act", "mla_up_proj")),
        ("moe", "selective", ("moe",)),
        ("moe+layernorm", "selective", ("layernorm", "moe")),
        ("selective:shared_experts", "selective", ("shared_experts",)),
        ("selective activation checkpointing", "selective", None),
        ("granularity: whatever", None, None),
        ("", None, None),
        ("what the yaml says", None, None),
    ],
)
def test_recompute(text: str, policy: str | None, modules: tuple[str, ...] | None) -> None:
    found, named, _ = words.recompute_of(text)
    assert (found, named) == (policy, modules)


@pytest.mark.parametrize("text", ["", "what the yaml says", "full-5-layers(block)", "offload"])
def test_what_recompute_leaves_open_is_said(text: str) -> None:
    assert words.recompute_of(text)[2]


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("every 4 layers", 4),
        ("full, every 4 layers", 4),
        ("full (uniform, 2)", 2),
        ("recompute-method uniform, recompute-num-layers 8", 8),
        ("checkpoint interval 3", 3),
        ("uniform, 1 layer", 1),
        ("uniform", None),
        ("full", None),
        ("every 4th layer", None),
        ("every other layer", None),
        ("full-5-layers(block)", None),
        ("every 0 layers", None),
    ],
)
def test_layers_that_share_a_checkpoint(text: str, interval: int | None) -> None:
    assert words.recompute_interval_of(text) == interval
    policy, modules, notes = words.recompute_of(text)
    assert (policy, modules) == ("full", None)
    assert ("one checkpoint for every" in "".join(notes)) == (interval is not None and interval > 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ZeRO++", ("qwz", "hpz", "qgz")),
        ("zeropp", ("qwz", "hpz", "qgz")),
        ("DeepSpeed ZeRO++ qwZ", ("qwz",)),
        ("ZeRO-3 (qgz+qwz)", ("qwz", "qgz")),
        ("zero-3, ZeRO++ without hpZ", ("qwz", "qgz")),
        ("zero_quantized_weights=true, zero_quantized_gradients: false", ("qwz",)),
        ("zero_hpz_partition_size 8", ("hpz",)),
        ("no ZeRO++", ()),
        ("ZeRO++: off", ()),
        ("ZeRO-3", ()),
        ("", ()),
    ],
)
def test_parts_of_zero_plus(text: str, parts: tuple[str, ...]) -> None:
    assert words.zero_plus_of(text) == parts
    if parts:
        assert words.sharding_of(text)[0] == 3


@pytest.mark.parametrize(
    "text",
    [
        "no checkpointing",
        "gradient_checkpointing=False",
        "activation checkpointing off",
        "disabled (full)",
        "remat none",
        "not full",
        "without recompute",
    ],
)
def test_recompute_that_is_taken_back_is_none(text: str) -> None:
    assert words.recompute_of(text) == ("none", None, ())


@pytest.mark.parametrize("text", ["full, no offload", "gradient_checkpointing: true", "full (offload: off)"])
def test_what_is_taken_back_beside_it_changes_nothing(text: str) -> None:
    assert words.recompute_of(text)[0] == "full"


@pytest.mark.parametrize("text", ["bf16 (no fp8)", "FP8 disabled", "bf16, fp8=False"])
def test_a_format_that_is_taken_back_is_not_used(text: str) -> None:
    assert words.precision_of(text, H100)[0].name == "bf16"


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("0", 0),
        ("ddp", 0),
        ("DDP", 0),
        ("no", 0),
        ("off", 0),
        ("False", 0),
        ("none", 0),
        ("NO_SHARD", 0),
        ("FSDP NO_SHARD", 0),
        ("1", 1),
        ("distopt", 1),
        ("zero-1", 1),
        ("Distributed Optimizer", 1),
        ("2", 2),
        ("SHARD_GRAD_OP", 2),
        ("ZeRO stage 2", 2),
        ("stage 2", 2),
        ("zero_stage_2", 2),
        ("3", 3),
        ("3.0", 3),
        ("FSDP2", 3),
        ("FULL_SHARD", 3),
        ("DeepSpeed ZeRO-3", 3),
        ("hsdp", 3),
        ("HYBRID_SHARD", 3),
    ],
)
def test_sharding(text: str, stage: int) -> None:
    assert words.sharding_of(text) == (stage, text.lower().startswith("h"), ())


@pytest.mark.parametrize("text", ["4", "zero", "some of it"])
def test_sharding_that_is_not_known_is_said(text: str) -> None:
    stage, _, notes = words.sharding_of(text)
    assert stage is None
    assert text in notes[0]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("zero1 group size 8 (hybrid zero)", 8),
        ("zero1 group size all DP", None),
        ("ZeRO-3 group size 64", 64),
        ("hsdp group size 4", 4),
        ("sharding group of 16", 16),
        ("ZeRO++ hpz 16", None),
        ("", None),
    ],
)
def test_shard_groups(text: str, group: int | None) -> None:
    assert words.shard_group_of(text) == group


@pytest.mark.parametrize(
    ("text", "overlaps"),
    [
        ("", True),
        ("TP_COMM_OVERLAP=True; OVERLAP_GRAD_REDUCE=False", True),
        ("TP_COMM_OVERLAP=False; OVERLAP_GRAD_REDUCE=True", False),
        ("tp_comm_overlap: 0", False),
        ("TP comm overlap off", False),
        ("no TP overlap", False),
        ("without tensor-parallel comm overlap", False),
        ("all overlap off (documented non-overlap contract); cp_comm_type=a2a", False),
        ("no communication overlap", False),
        ("HybridEP, no EP overlap", True),
        ("moe_a2a_overlap=False", True),
        ("overlap-grad-reduce, overlap-param-gather, tp-comm-overlap", True),
    ],
)
def test_overlap_of_tensor_parallelism(text: str, overlaps: bool) -> None:
    assert words.overlaps_products(text) is overlaps


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("optimizer on the CPU", "optimizer"),
        ("cpu", "optimizer"),
        ("Activations", "activations"),
        ("param offload", "parameters"),
        ("", "none"),
        ("none", "none"),
        ("no offload of optimizer", "none"),
        ("offload=False", "none"),
    ],
)
def test_offload(text: str, kind: str) -> None:
    assert words.offload_of(text) == (kind, ())


def test_offload_that_is_not_known_is_said() -> None:
    assert "somewhere" in words.offload_of("somewhere")[1][0]


@pytest.mark.parametrize(
    ("text", "first", "kind"),
    [
        ("rank 0 (first pipeline stage), GB; allocated or reserved not stated", True, None),
        ("GiB, rank-0 peak allocated", True, "allocated"),
        ("rank 0 reserved", True, "reserved"),
        ("torch max_memory_allocated, GiB", False, "allocated"),
        ("GiB, peak active", False, "allocated"),
        ("allocated after iteration 1 (reserved 72-73)", False, "allocated"),
        ("GiB, max over ranks of torch max_memory_reserved", False, "reserved"),
        ("nvidia-smi style", False, "device"),
        ("nvml", False, "device"),
        ("max device memory used, worst node", False, "device"),
        ("rounded (~), kind not stated", False, None),
        ("peak memory as printed (GB)", False, None),
        ("", False, None),
    ],
)
def test_memory_figures(text: str, first: bool, kind: str | None) -> None:
    assert words.memory_figure_of(text) == words.MemoryFigure(first_stage=first, kind=kind)


def test_a_memory_figure_that_is_not_known_is_said() -> None:
    assert "what the fan says" in words.memory_figure_of("what the fan says").notes[0]


@pytest.mark.parametrize(
    ("text", "dense", "step"),
    [
        ("", 0, 1),
        ("none", 0, 1),
        ("first 3", 3, 1),
        ("first_k_dense=16", 16, 1),
        ("3", 3, 1),
        ("1 dense layer", 1, 1),
        ("layers 0-15 dense", 16, 1),
        ("every other", 0, 2),
        ("every 4th has experts", 0, 4),
    ],
)
def test_dense_layers(text: str, dense: int, step: int) -> None:
    assert model_words.leading_dense_layers(text) == (dense, step, ())


def test_dense_layers_that_are_not_understood_are_said() -> None:
    assert model_words.leading_dense_layers("some of them")[2]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("MLA; with 1 MTP layer", 1),
        ("with 2 MTP layers", 2),
        ("MTP depth 1", 1),
        ("w/o MTP", 0),
        ("no MTP", 0),
        ("", None),
    ],
)
def test_multi_token_prediction(text: str, layers: int | None) -> None:
    assert model_words.mtp_layers(text) == layers


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    words.precision_of(text, GAUDI)
    words.recompute_of(text)
    words.sharding_of(text)
    words.shard_group_of(text)
    words.zero_plus_of(text)
    words.second_copy_of(text)
    words.recompute_interval_of(text)
    words.cp_comm_of(text, ("p2p", "a2a"))
    words.offload_of(text)
    words.memory_figure_of(text)
    model_words.leading_dense_layers(text)
    model_words.mtp_layers(text)
