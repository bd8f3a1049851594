"""Calibrations: which row a case gets, what a file may hold, and how sure an answer can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.arrays import num
from costmodel.calibration.calibration import (
    DEFAULT_CALIBRATION,
    Calibration,
    ParameterRow,
    Resolved,
    calibration_names,
    load_calibration,
)
from costmodel.calibration.parameters import PARAMETER_NAMES, stack
from costmodel.catalog.cluster_catalog import accelerator_names, load_accelerator
from costmodel.catalog.framework_catalog import framework_names
from costmodel.errors import InvalidInput, UnknownName

DECISIVE = "gemm_efficiency"


def general_rows(**keys: Any) -> tuple[ParameterRow, ...]:
    """A row of value 1 for every parameter."""
    return tuple(
        ParameterRow(name=name, value=1, provenance="calibrated", source="a test", **keys) for name in PARAMETER_NAMES
    )


def resolved_with(*rows: dict[str, Any], case: dict[str, str] | None = None) -> Resolved:
    """Rows for one parameter beside general rows for all, resolved for an H100."""
    added = tuple(
        ParameterRow(**{"name": DECISIVE, "provenance": "calibrated", "source": "a test", **row}) for row in rows
    )
    known = {"accelerator": "h100", "family": "hopper", "precision": "bf16", "framework": "megatron-core"}
    calibration = Calibration(name="test", retrieved="2026-11-29", source="a test", parameters=general_rows() + added)
    return calibration.resolve(**(known | (case or {})))


ROWS: dict[str, dict[str, Any]] = {
    "general": {"value": 2},
    "framework": {"value": 3, "framework": "megatron-core"},
    "precision": {"value": 4, "precision": "bf16"},
    "family": {"value": 5, "family": "hopper"},
    "family, framework": {"value": 6, "family": "hopper", "framework": "megatron-core"},
    "family, precision": {"value": 7, "family": "hopper", "precision": "bf16"},
    "accelerator": {"value": 8, "accelerator": "h100"},
    "accelerator, precision": {"value": 9, "accelerator": "h100", "precision": "bf16"},
}
SPECIFICITY = list(ROWS)[1:]  # least to most; "general" ties with the row that is there anyway


@pytest.mark.parametrize("position", range(1, len(SPECIFICITY)))
def test_the_row_that_says_most_about_the_case_wins(position: int) -> None:
    """Accelerator over family over any; then a precision over none; then a framework; in whatever order they stand."""
    lesser, greater = ROWS[SPECIFICITY[position - 1]], ROWS[SPECIFICITY[position]]
    for rows in ([lesser, greater], [greater, lesser]):
        assert resolved_with(*rows).parameters.gemm_efficiency == greater["value"]


@pytest.mark.parametrize(
    "row",
    [
        {"value": 5, "accelerator": "a100"},
        {"value": 5, "family": "ampere"},
        {"value": 5, "precision": "fp8"},
        {"value": 5, "framework": "torchtitan"},
        {"value": 5, "family": "hopper", "precision": "fp8"},
        {"value": 5, "accelerator": "h100", "framework": "torchtitan"},
    ],
    ids=str,
)
def test_a_row_about_another_case_is_not_used(row: dict[str, Any]) -> None:
    assert resolved_with(row).parameters.gemm_efficiency == 1


def test_an_accelerator_without_a_row_of_its_own_gets_its_familys() -> None:
    found = resolved_with(ROWS["accelerator"], ROWS["family"], case={"accelerator": "h200"})
    assert found.parameters.gemm_efficiency == 5


def test_a_family_without_a_row_gets_the_default_and_the_answer_says_so() -> None:
    rows = (ROWS["accelerator"], ROWS["family"])
    unknown = resolved_with(*rows, case={"accelerator": "mi300x", "family": "cdna3"})
    assert unknown.parameters.gemm_efficiency == 1
    assert unknown.fallbacks == (DECISIVE,)
    assert resolved_with(*rows).fallbacks == ()


@pytest.mark.parametrize(
    ("provenances", "expected"),
    [
        (("calibrated", "analytic"), "analytic"),
        (("measured", "measured"), "calibrated"),  # the other decisive rows are calibrated only
        (("calibrated", "measured"), "calibrated"),
    ],
)
def test_provenance_is_that_of_the_least_certain_decisive_parameter(
    provenances: tuple[str, str], expected: str
) -> None:
    rows = (
        {"value": 2, "family": "hopper", "provenance": provenances[0]},
        {"name": "attention_efficiency", "value": 2, "family": "hopper", "provenance": provenances[1]},
    )
    assert resolved_with(*rows).certainty() == expected
    minor = {"name": "overhead_bytes", "value": 2, "family": "hopper", "provenance": "analytic"}
    assert resolved_with(minor).certainty() == "calibrated"


def test_a_calibration_without_a_general_row_is_refused_by_the_parameters_name() -> None:
    rows = tuple(row for row in general_rows() if row.name not in ("usable_fraction", "logits_bytes"))
    calibration = Calibration(name="partial", retrieved="", source="", parameters=rows)
    with pytest.raises(InvalidInput, match="general row for logits_bytes, usable_fraction"):
        calibration.resolve(accelerator="h100", family="hopper", precision="bf16", framework="megatron-core")


def written(folder: Path, *rows: dict[str, Any], **changes: Any) -> str:
    document = {"name": "mine", "retrieved": "2026-11-29", "source": "a test"}
    document |= {"parameters": [row.model_dump(exclude_none=True) for row in general_rows()] + list(rows)} | changes
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def row_of(**fields: Any) -> dict[str, Any]:
    return {"name": DECISIVE, "value": 0.5, "provenance": "calibrated", "source": "a test"} | fields


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    calibration = load_calibration(written(tmp_path, row_of(framework="megatron-core")))
    found = calibration.resolve(accelerator="h100", family="hopper", precision="bf16", framework="megatron-core")
    assert found.parameters.gemm_efficiency == 0.5


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = written(tmp_path, row_of(framework="megatron-core"))
    assert load_calibration(path).parameters[-1].value == 0.5
    assert (
        load_calibration(written(tmp_path, row_of(framework="megatron-core", value=0.25))).parameters[-1].value == 0.25
    )


def test_a_calibration_is_a_value() -> None:
    first = Calibration(name="a", retrieved="2026-11-29", source="a test", parameters=general_rows())
    same = Calibration(name="a", retrieved="2026-11-29", source="a test", parameters=general_rows())
    other = Calibration(name="a", retrieved="2026-11-29", source="a test", parameters=general_rows(family="hopper"))
    assert first == same
    assert hash(first) == hash(same)
    assert first != other
    case = {"accelerator": "h100", "family": "hopper", "precision": "bf16", "framework": "megatron-core"}
    assert first.resolve(**case) is same.resolve(**case)
    assert first.resolve(**case) is not other.resolve(**case)


def test_an_unknown_parameter_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"'gemm_efficency' is not usable; did you mean gemm_efficiency"):
        load_calibration(written(tmp_path, row_of(name="gemm_efficency")))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (row_of(value=-1), r"calibration\.parameters\[\d+\]\.value"),
        (row_of(value=float("nan")), r"calibration\.parameters\[\d+\]\.value"),
        (row_of(provenance="guessed"), r"calibration\.parameters\[\d+\]\.provenance"),
        (row_of(gpu="h100"), r"calibration\.parameters\[\d+\]\.gpu"),
    ],
    ids=lambda case: str(case)[:60],
)
def test_a_wrong_row_is_refused_by_its_field(tmp_path: Path, row: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        load_calibration(written(tmp_path, row))


def test_a_date_is_a_date(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"calibration\.retrieved: 'last week' .* 2026-11-29"):
        load_calibration(written(tmp_path, retrieved="last week"))


def test_an_unknown_calibration_is_refused() -> None:
    with pytest.raises(UnknownName, match=DEFAULT_CALIBRATION):
        load_calibration("starting-2025-11")


@pytest.mark.parametrize("name", calibration_names())
@pytest.mark.parametrize("accelerator", accelerator_names())
def test_the_shipped_calibrations_answer_for_every_accelerator(name: str, accelerator: str) -> None:
    spec = load_accelerator(accelerator)
    for framework in (*framework_names(), "some other framework"):
        for precision in ("bf16", "fp8", "a recipe of tomorrow"):
            found = load_calibration(name).resolve(
                accelerator=spec.name, family=spec.family, precision=precision, framework=framework
            )
            assert 0 < found.parameters.gemm_efficiency <= 1
            assert 0 < found.parameters.usable_fraction <= 1


@pytest.mark.parametrize("name", calibration_names())
def test_every_shipped_row_has_a_source_and_is_needed(name: str) -> None:
    calibration = load_calibration(name)
    keys = [(r.name, r.accelerator, r.family, r.precision, r.framework) for r in calibration.parameters]
    assert len(set(keys)) == len(keys), "two rows for the same case"
    assert all(len(row.source) >= 5 for row in calibration.parameters)
    families = {load_accelerator(accelerator).family for accelerator in accelerator_names()}
    # Processes of a CPU are described by files that the probe writes.
    assert {row.family for row in calibration.parameters} - {None} <= families | {"cpu"}
    assert {row.accelerator for row in calibration.parameters} - {None} <= set(accelerator_names())
    assert {row.framework for row in calibration.parameters} - {None} <= set(framework_names())


def test_what_is_not_measured_is_called_analytic() -> None:
    """Eight runs on V100 say how fast its GEMMs are, none says it of attention; some 50 on H100 say both."""
    calibration = load_calibration()
    known = calibration.resolve(
        accelerator="h100-sxm5-80gb", family="hopper", precision="bf16", framework="megatron-core"
    )
    unknown = calibration.resolve(
        accelerator="v100-sxm2-32gb", family="volta", precision="fp16", framework="megatron-core"
    )
    assert (known.certainty(), known.fallbacks) == ("calibrated", ())
    assert unknown.certainty() == "analytic"
    assert "attention_efficiency" in unknown.fallbacks


def test_columns_of_parameters_keep_their_rows() -> None:
    first, second = (resolved_with({"value": value, "accelerator": "h100"}).parameters for value in (0.25, 0.5))
    columns = stack([first, second])
    assert columns.gemm_efficiency.tolist() == [0.25, 0.5]
    assert columns.overhead_bytes.tolist() == [1, 1]
    assert columns.gemm_efficiency.dtype == num(0).dtype


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gemm_efficiency", 1.8, "at most 1"),
        ("usable_fraction", 1.01, "at most 1"),
        ("gemm_efficiency", 0, "above 0"),
        ("compute_multiplier", 0, "above 0"),
        ("gemm_alignment", 0, "above 0"),
    ],
)
def test_a_value_that_no_hardware_can_have_is_refused(tmp_path: Path, name: str, value: float, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load_calibration(written(tmp_path, row_of(name=name, value=value)))
