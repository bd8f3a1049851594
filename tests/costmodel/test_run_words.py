"""What people write in tables of runs, and what it is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.catalog.cluster_catalog import load_accelerator
from costmodel.runs import words

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
        ("fp8-mx", "fp8"),
        ("FP8 (TE)", "fp8"),
        ("float8 rowwise, bf16 all-gather", "fp8"),
        ("mxfp8_cublas", "fp8"),
        ("fp32", "fp32"),
        ("tf32", "fp32"),
    ],
)
def test_precisions_are_recognised(text: str, means: str) -> None:
    recipe, notes = words.precision_of(text, H100)
    assert recipe.name == means
    assert notes == ()


@pytest.mark.parametrize(
    ("text", "means", "said"),
    [("nvfp4", "fp8", "priced as fp8"), ("int3", "bf16", "not known"), ("", "bf16", "blank")],
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
        ("selective:core_attn", "selective", ("core_attn",)),
        ("selective:moe_act+layernorm", "selective", ("layernorm", "moe_act")),
        ("selective:mlp+mla_up_proj", "selective", ("mla_up_proj",)),
        ("core_attn", "selective", ("core_attn",)),
        ("layernorm+moe_act", "selective", ("layernorm", "moe_act")),
        ("[moe_act, mla_up_proj]", "selective", ("moe_act", "mla_up_proj")),
        ("moe", "selective", ()),
        ("selective activation checkpointing", "selective", None),
        ("granularity: whatever", None, None),
        ("", None, None),
        ("what the yaml says", None, None),
    ],
)
def test_recompute(text: str, policy: str | None, modules: tuple[str, ...] | None) -> None:
    found, named, _ = words.recompute_of(text)
    assert (found, named) == (policy, modules)


@pytest.mark.parametrize("text", ["", "what the yaml says", "full-5-layers(block)", "offload", "selective:mlp"])
def test_what_recompute_leaves_open_is_said(text: str) -> None:
    assert words.recompute_of(text)[2]


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("0", 0),
        ("ddp", 0),
        ("DDP", 0),
        ("1", 1),
        ("distopt", 1),
        ("zero-1", 1),
        ("Distributed Optimizer", 1),
        ("2", 2),
        ("SHARD_GRAD_OP", 2),
        ("3", 3),
        ("3.0", 3),
        ("FSDP2", 3),
        ("FULL_SHARD", 3),
        ("hsdp", 3),
        ("HYBRID_SHARD", 3),
    ],
)
def test_sharding(text: str, stage: int) -> None:
    word = words.sharding_of(text)
    assert word is not None
    assert word.means == stage
    assert word.hybrid == (text.lower().startswith("h"))


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("zero1 group size 8 (hybrid zero)", 8),
        ("zero1 group size all DP", None),
        ("ZeRO-3 group size 64", 64),
        ("", None),
    ],
)
def test_shard_groups(text: str, group: int | None) -> None:
    assert words.shard_group_of(text) == group


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("rank 0 (first pipeline stage), GB; allocated or reserved not stated", "first_stage"),
        ("GiB, rank-0 peak allocated", "first_stage"),
        ("torch max_memory_allocated, GiB", "allocated"),
        ("GiB, peak active", "allocated"),
        ("GiB, max over ranks of torch max_memory_reserved", "reserved"),
        ("nvidia-smi style", "device"),
        ("max device memory used, worst node", "device"),
        ("", None),
    ],
)
def test_memory_kinds(text: str, kind: str | None) -> None:
    assert words.memory_kind_of(text) == kind


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    words.precision_of(text, GAUDI)
    words.recompute_of(text)
    words.sharding_of(text)
    words.shard_group_of(text)
    words.cp_comm_of(text, ("p2p", "a2a"))
    words.offload_of(text)
    words.memory_kind_of(text)
