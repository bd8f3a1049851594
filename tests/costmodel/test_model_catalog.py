"""The catalog: published counts of every model in it, and loading by name, by path and from a user's folder."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import pytest

from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.errors import InvalidInput, UnknownName, UnreadableFile

MODELS = files("costmodel.catalog") / "models"
ROWS = list(csv.DictReader((MODELS / "SOURCES.csv").read_text(encoding="utf-8").splitlines()))
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "vocab_size": 1000,
}
OWN = """
num_layers: 2
hidden_size: 8
num_heads: 2
num_kv_heads: 1
head_dim: 4
ffn_hidden_size: 16
vocab_size: 32
tie_word_embeddings: true
"""


@pytest.fixture(autouse=True)
def no_user_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_CATALOG_DIR", raising=False)


def billions(count: int) -> Decimal:
    return round(Decimal(count) / 10**9, 3)


def test_every_model_has_a_source_and_every_source_a_model() -> None:
    assert model_names() == tuple(sorted(row["model"] for row in ROWS))
    assert len(ROWS) >= 69
    for row in ROWS:
        assert row["source"]
        assert row["license"]
        assert row["retrieved"]
        assert row["published_source"]


@pytest.mark.parametrize("row", ROWS, ids=[row["model"] for row in ROWS])
def test_counts_are_the_published_ones(row: dict[str, str]) -> None:
    model = load_model(row["model"])
    assert model.name == row["model"]
    assert model.source == row["source"]
    # Exact, but for counts that their source rounds.
    within = float(row["within"] or 0) * int(row["published_params"])
    assert abs(model.params.total - int(row["published_params"])) <= within
    assert bool(row["active_params_b"]) == (model.moe is not None)
    active = model.params.active / 10**9
    assert active == pytest.approx(float(row["active_params_b"] or model.params.total / 10**9), abs=6e-4)
    if row["mtp_extra_b"] == "unpublished":
        assert model.num_mtp_layers > 0
    else:
        assert billions(model.params.mtp) == Decimal(row["mtp_extra_b"] or "0")


def test_what_sets_models_apart_survives_the_import() -> None:
    assert load_model("deepseek-v3").num_mtp_layers == 1
    assert load_model("deepseek-v2-lite").mla != load_model("deepseek-v2").mla
    assert load_model("gpt-oss-120b").sliding_window == 128


def test_names_are_the_same_in_any_case() -> None:
    assert load_model("DeepSeek-V3") == load_model("deepseek-v3")


@pytest.mark.parametrize("name", ["llama-3.1-405", "Llama 3.1 405b", "lama-3.1-405b"])
def test_a_misspelt_name_gets_the_nearest_ones(name: str) -> None:
    with pytest.raises(UnknownName, match=r"llama-3\.1-405b") as caught:
        load_model(name)
    assert caught.value.field == "model"


@pytest.mark.parametrize("name", ["", "  ", "gibberish", "nul\0byte"])
def test_other_names_get_a_list(name: str) -> None:
    with pytest.raises(UnknownName, match=r"a path to a config\.json works too"):
        load_model(name)


def test_a_directory_called_like_a_misspelt_name_is_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deepseek").mkdir()
    with pytest.raises(UnknownName, match="deepseek-"):
        load_model("deepseek")


def test_config_json_by_path_and_by_directory(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    by_file, by_directory = load_model(str(folder / "config.json")), load_model(str(folder))
    assert by_file == by_directory
    assert by_file.name == "my-model"
    assert by_file.source == str(folder / "config.json")


def test_yaml_with_either_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "hf.yaml").write_text("\n".join(f"{key}: {value}" for key, value in LLAMA.items()))
    (tmp_path / "own.yml").write_text(OWN)
    (tmp_path / "named.yml").write_text(OWN + "name: mine\nmoe: {num_experts: 4, top_k: 1, expert_ffn_hidden_size: 3}")
    assert load_model(str(tmp_path / "hf.yaml")).num_layers == 6
    assert load_model(str(tmp_path / "own.yml")).name == "own"
    named = load_model(str(tmp_path / "named.yml"))
    assert (named.name, named.params.num_experts) == ("mine", 4)


def test_own_fields_are_validated_like_configs(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN.replace("num_heads: 2", "num_heads: two"))
    with pytest.raises(InvalidInput, match=r"^num_heads: 'two' is not usable; a whole number is expected$"):
        load_model(str(file))


def test_a_users_folder_extends_the_catalog_and_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "ours.yaml").write_text(OWN)
    (folder / "Llama-3-8B.json").write_text(json.dumps(LLAMA))
    (folder / ".ours.json").write_text("half-written")
    (folder / "notes.txt").write_text("not a model")
    assert "ours" not in model_names()
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert set(model_names()) == {row["model"] for row in ROWS} - {"llama-3-8b"} | {"ours", "Llama-3-8B"}
    assert load_model("ours").num_layers == 2
    assert load_model("OURS").source == str(folder / "ours.yaml")
    assert load_model("llama-3-8b").num_layers == 6


def test_a_users_folder_may_hold_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = model_names()
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert model_names() == packaged


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'{"a": 1,\n  "b" 2}', "line 2, column 7: Expecting ':' delimiter"),
        ("a.json", b"", "line 1, column 1: Expecting value"),
        ("a.yaml", b"a: [1,\nb: }", "line 2, column 4: "),
        ("a.yaml", b"a: 1\nb: \x07", "it isn't YAML: .*characters"),
        ("a.yaml", b"a: 2026-13-45", "it holds an unusable value: month must be in 1..12"),
        ("a.json", b"[1, 2]", "a mapping of field to value is expected at the top, not a list"),
        ("a.yaml", b"just text", "a mapping of field to value is expected at the top, not a str"),
        ("a.yaml", b"", "a mapping of field to value is expected at the top, not nothing"),
        ("a.json", b'{"a": "\xff"}', r"UTF-8 text is expected \(byte 7 isn't\)"),
        ("a.json", b"[" * 200_000, "it is nested too deeply"),
        ("a.json", b"9" * 5000, "it holds an unusable value: Exceeds the limit"),
        ("a.json", b'{"vocab_size": 1, "vocab_size": 2}', "'vocab_size' is given twice"),
        ("a.json", b'{"rope": {"base": 1, "base": 2}}', "'base' is given twice"),
        ("a.yaml", b"vocab_size: 1\nvocab_size: 2", "line 2, column 1: 'vocab_size' is given twice"),
        ("a.yaml", b"1: one", "field names are text, not 1"),
        ("a.json", b" " * (16 * 2**20 + 1), "it is larger than 16 MiB"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_unreadable_files_say_where(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UnreadableFile, match=message) as caught:
        load_model(str(file))
    assert "\n" not in str(caught.value)
    assert caught.value.value == str(file)


@pytest.mark.parametrize("path", ["nowhere.json", "./nowhere", "no/where", "nowhere.YAML", "~nobody-of-that-name/x"])
def test_a_path_that_leads_nowhere_says_so(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableFile, match=r"no such file|home directory"):
        load_model(path)


def test_a_directory_without_a_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"the directory has no config\.json"):
        load_model(str(tmp_path))


def test_a_name_too_long_for_a_file_is_no_crash() -> None:
    with pytest.raises(InvalidInput, match=r"^model: "):
        load_model("x" * 5000)


@pytest.mark.parametrize("content", ['{"architectures": ["X"]}', "{}", '{"num_hidden_layers": 3}'])
def test_an_object_that_is_no_model_says_so(tmp_path: Path, content: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(content)
    with pytest.raises(InvalidInput, match="model_type"):
        load_model(str(file))


def test_infinity_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    text = json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")], "eps": float("nan")})
    assert "Infinity" in text
    file.write_text(text, encoding="utf-8-sig")
    assert load_model(str(file)).num_layers == 6
