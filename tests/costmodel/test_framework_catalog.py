"""Frameworks by name, by alias and out of free text; their versions and what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.catalog.folders import CATALOG_DIR_VARIABLE
from costmodel.catalog.framework_catalog import framework_names, load_framework, recognise_framework
from costmodel.errors import InvalidInput, UnknownName


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("torchtitan+torchao (FSDP2)", "torchtitan", None),
        ("torchtitan fork (FSDP2 + DeepEP)", "torchtitan", None),
        ("megatron", "megatron-core", None),
        ("Megatron-LM core_v0.12", "megatron-core", "0.12"),
        ("Primus (Megatron backend, ROCm)", "megatron-core", None),
        ("NVIDIA Megatron-Bridge 0.3", "megatron-bridge", "0.3"),
        ("NeMo 2", "nemo", None),
        ("MaxText (JAX/XLA GPU)", "maxtext", None),
        ("Composer+PyTorch FSDP1", "llm-foundry", None),
        ("llm-foundry (Composer+PyTorch FSDP1)", "llm-foundry", None),
        ("DeepSpeed 0.19.2 ZeRO-3", "deepspeed", "0.19"),
        # Of several names the longest decides: by "deepspeed" alone it would be another.
        ("Megatron-DeepSpeed (Habana)", "megatron-core", None),
        ("nanotron", "nanotron", None),
        ("HF Accelerate + FSDP", "accelerate", None),
        ("NeMo 2.0", "nemo", "2.0"),
        ("torchtitan 0.2.2", "torchtitan", "0.2"),
        ("torchtitan@v0.2.2, FSDP2", "torchtitan", "0.2"),
        ("megatron-core 0.15.", "megatron-core", "0.15"),
        ("megatron-core==0.14.1 (TE 2.1)", "megatron-core", "0.14"),
        ("Megatron-LM core_r0.11.0rc1", "megatron-core", "0.11"),
        # A number behind the name that is none of its versions.
        ("Megatron-LM 530B", "megatron-core", None),
        ("DeepSpeed 0.3.13", "deepspeed", None),
    ],
)
def test_free_text_names_a_framework_and_perhaps_its_version(text: str, name: str, version: str | None) -> None:
    framework, recognised = recognise_framework(text)
    assert (framework.name, recognised) == (name, True)
    assert framework == load_framework(name, version)


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
        ("torchtitan", "2026-08-22", "2026-08"),
        ("megatron-core", "core_r0.14", "0.14"),
        ("megatron-core", "core_v0.14.1", "0.14"),
        ("megatron-core", "0.16rc1", "0.16"),
        ("megatron-core", "0.16.0rc0.dev104016", "0.16"),
        ("megatron-core", "release 0.15", "0.15"),
        ("megatron-core", "0.15.0+cu128", "0.15"),
        ("nemo", "r2.5.0", "2.5"),
    ],
)
def test_a_patch_a_tag_or_a_branch_is_the_version_it_belongs_to(name: str, asked: str, version: str) -> None:
    assert load_framework(name, asked).version == version


@pytest.mark.parametrize("asked", ["0.1", "0.160", "1.0", "", "main", "0.14.x", "core_r0.1"])
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
    assert set(spec.recompute_modules.values()) <= set(spec.versions)
    assert set((spec.offloads or {}).values()) <= set(spec.versions)
    assert set((spec.moe_dispatchers or {}).values()) <= set(spec.versions)
    assert spec.at(spec.version) == spec
    for version in spec.versions:
        then = spec.at(version)
        assert set(then.selective_modules) <= set(then.known_recompute_modules())
        assert then.at(spec.version) == spec
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


# First version of Megatron-Core's that has each, as its wheels on PyPI show.
FIRST_VERSIONS = {
    "recompute_uniform": "0.9",
    "recompute_block": "0.9",
    "uneven_ends": "0.9",
    "uneven_ends_interleaved": "0.11",
    "account_for_ends": "0.11",
    "pipeline_layout": "0.13",
    "pipeline_layout_mtp": "0.14",
    "expert_tensor_parallel": "0.10",
    "kv_replication": "0.16",
    "cp_comm_type": "0.10",
    "optimizer_instances": "0.10",
    "expert_optimizer_instances": "0.13",
    "megatron_fsdp": "0.12",
    "latent_attention": "0.10",
    "latent_attention_tp": "0.11",
    "shared_experts": "0.10",
    "multi_token_prediction": "0.12",
    "mamba2_cp": "0.13",
    "gated_delta_net": "0.16",
    "gated_delta_net_cp": "0.17",
    "tp_overlap": "0.9",
    "moe_capacity": "0.9",
    "hybrid_ep": "0.16",
    "ep_overlap": "0.14",
    "ep_overlap_mtp_in_pipeline": "0.16",
    "ep_overlap_whole_moe": "0.17",
    "fp8_recompute_checked": "0.13",
    "fp8_recompute_of_norms": "0.14",
}
# Which Megatron-Core a version of NeMo shipped with (NeMo Framework's software component versions).
BEHIND_NEMO = {"2.0": "0.9", "2.1": "0.10", "2.2": "0.11", "2.3": "0.12", "2.4": "0.13", "2.5": "0.14"}


def test_first_versions_are_those_of_the_wheels() -> None:
    assert dict(load_framework("megatron-core").features) == FIRST_VERSIONS


@pytest.mark.parametrize("version", BEHIND_NEMO)
def test_nemo_has_nothing_that_its_megatron_core_lacks(version: str) -> None:
    nemo, engine = load_framework("nemo", version), load_framework("megatron-core", BEHIND_NEMO[version])
    assert {name for name in nemo.features if nemo.has(name) and not engine.has(name)} == set()
    assert set(nemo.known_recompute_modules()) == set(engine.known_recompute_modules())
    assert nemo.selective_modules == engine.selective_modules
    assert nemo.known_offloads() == engine.known_offloads()
    assert nemo.known_moe_dispatchers() == engine.known_moe_dispatchers()


def test_selective_once_meant_the_core_of_attention() -> None:
    assert load_framework("megatron-core", "0.11").selective_modules == ("core_attn",)
    assert "layernorm" in load_framework("megatron-core", "0.12").selective_modules
