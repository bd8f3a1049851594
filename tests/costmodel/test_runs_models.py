"""The model that a run's name means, among those of the catalog that begin alike."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.runs.columns import Run
from costmodel.runs.models import model_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("deepseek-v2-lite", "deepseek-v2-lite"),
        ("DeepSeek-V2-Lite (16B)", "deepseek-v2-lite"),
        ("deepseek-v2", "deepseek-v2"),
        ("DeepSeek V3.2", "deepseek-v3.2"),
        ("Nemotron_3_Nano", "nemotron-3-nano-30b-a3b"),
        ("llama-3.1-70b-instruct", "llama-3.1-70b"),
        ("Qwen2.5-72B", "qwen2.5-72b-instruct"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("Meta-Llama-3-70B", "llama-3-70b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b-instruct"),
    ],
)
def test_the_longest_name_that_a_text_says_is_meant(text: str, name: str) -> None:
    found = model_of(Run(id="", model_name=text)).spec
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["llama", "a model of our own", ""])
def test_a_family_is_no_model(text: str) -> None:
    assert model_of(Run(id="", model_name=text)).spec is None


@pytest.mark.parametrize("text", ["gpt2-xl", "deepseek-v3-lite", "mixtral-8x7b (13B)", "qwen3-30b-a3b-draft"])
def test_a_name_that_goes_on_is_another_model(text: str) -> None:
    found = model_of(Run(id="", model_name=text))
    assert found.spec is None
    assert text in found.notes[0]


@pytest.mark.parametrize(
    ("text", "billions"),
    [("LLaMA-7B", 7), ("gpt3 175b", 175), ("GPT-2 1.5B", 1.5), ("llama-3.1-8b-draft", 8), ("our-org/our-13B", 13)],
)
def test_the_size_in_a_dense_name_stands_for_a_shape(text: str, billions: float) -> None:
    found = model_of(Run(id="", model_name=text))
    assert found.spec is not None
    assert found.spec.params.total / 1e9 == pytest.approx(billions, rel=0.25)
    assert f"taken for {billions:g}B parameters" in found.notes[0]


def test_a_size_that_is_another_is_another_model() -> None:
    found = model_of(Run(id="", model_name="llama-3.1-8b", n_params_b=405.0))
    assert found.spec is not None
    assert found.spec.params.total == pytest.approx(405e9, rel=0.1)
    assert "405B" in found.notes[0]


LLAMA = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "vocab": 128256}


@pytest.mark.parametrize(
    ("stated", "attribute", "value"),
    [
        ({"swiglu": False}, "gated_mlp", False),
        ({"tied_embeddings": True}, "tie_word_embeddings", True),
        ({"head_dim": 64}, "head_dim", 64),
        ({"kv_heads": 32}, "num_kv_heads", 32),
    ],
)
def test_what_a_row_states_wins_over_the_name(stated: dict[str, Any], attribute: str, value: Any) -> None:
    assert model_of(Run(id="", model_name="llama-3.1-8b", **LLAMA)).spec == load_model("llama-3.1-8b")
    found = model_of(Run(id="", model_name="llama-3.1-8b", **(LLAMA | stated))).spec
    assert getattr(found, attribute) == value


@pytest.mark.parametrize(("note", "layers"), [("w/o MTP", 0), ("with 1 MTP layer", 1), ("", 1)])
def test_multi_token_prediction_is_as_the_notes_say(note: str, layers: int) -> None:
    found = model_of(Run(id="", model_name="deepseek-v3", arch_notes=note)).spec
    assert found is not None
    assert found.num_mtp_layers == layers
