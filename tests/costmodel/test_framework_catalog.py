"""Frameworks by name, by alias and out of free text; their versions and what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.catalog.folders import CATALOG_DIR_VARIABLE
from costmodel.catalog.framework_catalog import framework_names, load_framework, recognise_framework
from costmodel.errors import InvalidInput, UnknownName


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torchtitan+torchao (FSDP2)", "torchtitan"),
        ("torchtitan fork (FSDP2 + DeepEP)", "torchtitan"),
        ("megatron", "megatron-core"),
        ("Megatron-LM core_v0.12", "megatron-core"),
        ("Primus (Megatron backend, ROCm)", "megatron-core"),
        ("NVIDIA Megatron-Bridge 0.3", "megatron-bridge"),
        ("NeMo 2", "nemo"),
        ("MaxText (JAX/XLA GPU)", "maxtext"),
        ("Composer+PyTorch FSDP1", "llm-foundry"),
        ("llm-foundry (Composer+PyTorch FSDP1)", "llm-foundry"),
        ("DeepSpeed 0.19.2 ZeRO-3", "deepspeed"),
        # Of several names the longest decides: by "deepspeed" alone it would be another.
        ("Megatron-DeepSpeed (Habana)", "megatron-core"),
        ("nanotron", "nanotron"),
        ("HF Accelerate + FSDP", "accelerate"),
    ],
)
def test_free_text_names_a_framework(text: str, name: str) -> None:
    framework, recognised = recognise_framework(text)
    assert (framework.name, recognised) == (name, True)
    assert framework == load_framework(name)


@pytest.mark.parametrize("text", ["", "an in-house trainer"])
def test_text_that_names_none_gets_the_one_that_stands_in(text: str) -> None:
    framework, recognised = recognise_framework(text)
    assert framework.fallback
    assert not recognised


def test_one_framework_stands_in_and_no_word_names_two() -> None:
    specs = [load_framework(name) for name in framework_names()]
    assert len([spec for spec in specs if spec.fallback]) == 1
    words = [word for spec in specs for word in (spec.name, *spec.aliases)]
    assert len(set(words)) == len(words)
    assert [word for word in words if word != word.lower()] == []


@pytest.mark.parametrize(("asked", "name"), [("Megatron-LM", "megatron-core"), (" composer ", "llm-foundry")])
def test_an_alias_is_as_good_as_the_name(asked: str, name: str) -> None:
    assert load_framework(asked) == load_framework(name)


def test_a_part_of_a_name_is_none() -> None:
    with pytest.raises(UnknownName, match="did you mean torchtitan"):
        load_framework("torchtita")


@pytest.mark.parametrize(
    ("name", "asked", "version"),
    [
        ("megatron-core", "0.16.1", "0.16"),
        ("megatron-core", "v0.12", "0.12"),
        ("deepspeed", "0.19.8", "0.19"),
        ("torchtitan", "2026-08", "2026-08"),
    ],
)
def test_a_patch_release_is_the_version_it_belongs_to(name: str, asked: str, version: str) -> None:
    assert load_framework(name, asked).version == version


@pytest.mark.parametrize("asked", ["0.1", "0.160", "1.0", ""])
def test_a_version_that_no_rule_set_knows(asked: str) -> None:
    with pytest.raises(UnknownName, match="framework-version"):
        load_framework("megatron-core", asked)


@pytest.mark.parametrize("name", framework_names())
def test_what_a_file_says_agrees_with_itself(name: str) -> None:
    spec = load_framework(name)
    assert spec.version in spec.versions
    assert set(spec.features.values()) <= set(spec.versions)
    assert set(spec.zero_stages) <= {0, 1, 2, 3}
    assert spec.source
    # A version earlier than a feature lacks it, a later one has it.
    for feature, since in spec.features.items():
        position = spec.versions.index(since)
        assert [spec.at(version).has(feature) for version in spec.versions] == [
            index >= position for index in range(len(spec.versions))
        ]


def test_a_framework_of_one_s_own_may_have_no_rules_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "frameworks"
    folder.mkdir()
    text = (
        "name: home-made\ntitle: Home-made\naliases: [our trainer]\nrules: null\nversion: '1'\nversions: ['1']\n"
        "features: {}\nvendors: [NVIDIA]\nschedules: []\nzero_stages: [0, 3]\ncp_comm_types: []\n"
        "gradient_bytes: {bf16: 4}\nselective_modules: []\nvocab_padding_multiple: 1\nsource: us\n"
        "retrieved: 2026-11-29\n"
    )
    (folder / "home-made.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(CATALOG_DIR_VARIABLE, str(tmp_path))
    assert load_framework("home-made").rules is None
    assert recognise_framework("our trainer, as of May")[0].name == "home-made"


def test_a_file_has_to_say_which_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "frameworks"
    folder.mkdir()
    (folder / "vague.yaml").write_text("name: vague\ntitle: Vague\n", encoding="utf-8")
    monkeypatch.setenv(CATALOG_DIR_VARIABLE, str(tmp_path))
    with pytest.raises(InvalidInput, match="rules"):
        load_framework("vague")
