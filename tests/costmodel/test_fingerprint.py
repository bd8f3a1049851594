"""Ids are digests of content: equal for the same content however it was come by, different for any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.catalog.cluster_catalog import cluster_names, load_cluster, parse_cluster
from costmodel.catalog.model_catalog import load_model, model_names, named_model, parse_model
from costmodel.errors import UnknownName
from costmodel.fingerprint import (
    calibration_id,
    cluster_id,
    cost_model_version,
    digest,
    digest_of_sources,
    model_id,
    plan_id,
    scenario_id,
)
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from tests.plans import finished
from tests.scenarios import plan_row, scenario_of


def test_no_two_entries_of_the_catalog_share_an_id() -> None:
    models = [model_id(load_model(name)) for name in model_names()]
    clusters = [cluster_id(load_cluster(name)) for name in cluster_names()]
    assert len(set(models)) == len(models)
    assert len(set(clusters)) == len(clusters)


def test_where_a_model_was_read_from_is_not_what_it_is(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 32_000,
    }
    for folder in ("here", "there"):
        (tmp_path / folder / "tiny").mkdir(parents=True)
        (tmp_path / folder / "tiny" / "config.json").write_text(json.dumps(config))
    here, there = (load_model(str(tmp_path / folder / "tiny")) for folder in ("here", "there"))
    assert here.source != there.source
    assert model_id(here) == model_id(there) == model_id(parse_model(config, "tiny"))
    assert model_id(here) != model_id(parse_model(config | {"num_hidden_layers": 5}, "tiny"))
    assert model_id(here) != model_id(parse_model(config, "other"))


@pytest.mark.parametrize(
    "change",
    [
        {"devices": 128},
        {"global_batch_size": 512},
        {"seq_len": 4096},
        {"precision": "fp8"},
        {"optimizer": "muon"},
        {"cluster": "dgx-h200"},
        {"model": "llama-3.1-8b"},
        {"version": "0.13"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_all_that_is_given_makes_the_scenario(change: dict[str, object]) -> None:
    assert scenario_id(scenario_of(**change)) != scenario_id(scenario_of())  # type: ignore[arg-type]


def test_the_calibration_is_not_part_of_the_scenario_but_of_the_plans_address() -> None:
    scenario = scenario_of()
    shipped = scenario.calibration
    first = shipped.parameters[0]
    changed = shipped.model_copy(
        update={"parameters": (first.model_copy(update={"value": first.value * 1.01}), *shipped.parameters[1:])}
    )
    other = scenario.model_copy(update={"calibration": changed})
    assert scenario_id(other) == scenario_id(scenario)
    assert calibration_id(changed) != calibration_id(shipped)
    plan, given = finished(scenario, plan_row(256, dp=64)), scenario_id(scenario)
    addresses = {
        plan_id(given, plan, calibration_id(shipped), "1"),
        plan_id(given, plan, calibration_id(changed), "1"),
        plan_id(given, plan, calibration_id(shipped), "2"),
        plan_id(given, plan.model_copy(update={"recompute": "full"}), calibration_id(shipped), "1"),
        plan_id("other", plan, calibration_id(shipped), "1"),
    }
    assert len(addresses) == 5


def test_the_order_of_keys_is_not_content() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"b": [1, 2]}) != digest({"b": [2, 1]})
    with pytest.raises(ValueError, match="JSON"):
        digest({"a": float("nan")})


def test_ids_are_the_same_in_another_process() -> None:
    script = (
        "from tests.scenarios import scenario_of; from costmodel.fingerprint import *;"
        "s = scenario_of(); print(scenario_id(s), calibration_id(s.calibration), cost_model_version())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    scenario = scenario_of()
    expected = [scenario_id(scenario), calibration_id(scenario.calibration), cost_model_version()]
    assert ran.stdout.split() == expected


def test_any_source_of_the_cost_model_makes_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "somebodys_costs"
    (package / "terms").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "terms" / "gemm.py").write_text("SECONDS = 1\n")
    (package / "notes.md").write_text("not code")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = digest_of_sources("somebodys_costs")
    (package / "notes.md").write_text("still not code")
    assert digest_of_sources("somebodys_costs") == before
    (package / "terms" / "gemm.py").write_text("SECONDS = 2\n")
    assert digest_of_sources("somebodys_costs") != before


def test_nouns_survive_the_way_through_json() -> None:
    for name in model_names():
        model = load_model(name)
        assert ModelSpec.model_validate(json.loads(model.model_dump_json())) == model
    scenario = scenario_of("deepseek-v3", "gb200-nvl72", 1024, precision="fp8")
    assert Scenario.model_validate(json.loads(scenario.model_dump_json())) == scenario


@pytest.mark.parametrize("name", ["./config.json", "../models/llama-3-8b.json", "llama-3-8b.json", "/dev/null", "~"])
def test_a_name_from_a_request_is_never_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName):
        named_model(name)


def test_a_cluster_from_a_request_has_the_id_of_one_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("extends: dgx-h100\nmax_devices: 488\n")
    given = parse_cluster({"name": "ours", "extends": "dgx-h100", "max_devices": 488})
    assert cluster_id(load_cluster(str(file))) == cluster_id(given)


def test_what_is_left_out_of_the_version_takes_no_part_in_a_price() -> None:
    """Reading models and clusters comes before; what was read is in the scenario's id."""
    script = (
        "import sys, planner.search.answer;"
        "print([name for name in sys.modules if name.startswith(('costmodel.runs', 'costmodel.fidelity', "
        "'costmodel.checker', 'costmodel.spec.native', 'costmodel.spec.families'))])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_version_changes_with_a_formula_and_not_with_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "somebodys_prices"
    for folder in ("terms", "runs"):
        (package / folder).mkdir(parents=True)
        (package / folder / "one.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = digest_of_sources("somebodys_prices", without=["runs"])
    (package / "runs" / "one.py").write_text("# read in another way")
    assert digest_of_sources("somebodys_prices", without=["runs"]) == before
    (package / "terms" / "one.py").write_text("# priced in another way")
    assert digest_of_sources("somebodys_prices", without=["runs"]) != before


def test_the_version_changes_with_a_published_sweep_and_not_with_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "somebodys_sweeps"
    for folder in ("catalog/collectives", "catalog/runs"):
        (package / folder).mkdir(parents=True)
        (package / folder / "one.csv").write_text("1\n")
    (package / "catalog" / "reader.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def version() -> str:
        return digest_of_sources("somebodys_sweeps", without=["catalog"], data="catalog/collectives")

    before = version()
    (package / "catalog" / "runs" / "one.csv").write_text("2\n")
    (package / "catalog" / "reader.py").write_text("# another way")
    assert version() == before
    (package / "catalog" / "collectives" / "one.csv").write_text("2\n")
    assert version() != before
