"""The model that a run's name means, among those of the catalog that begin alike."""

from __future__ import annotations

import pytest

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
    ],
)
def test_the_longest_name_that_a_text_says_is_meant(text: str, name: str) -> None:
    found = model_of(Run(id="", model_name=text)).spec
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["llama", "a model of our own", ""])
def test_a_family_is_no_model(text: str) -> None:
    assert model_of(Run(id="", model_name=text)).spec is None
