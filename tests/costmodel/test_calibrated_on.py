"""What an answer names as the ground of its figures: the accelerator's own rows, its family's, general values."""

from __future__ import annotations

import pytest

from costmodel.calibration.basis import bases_of
from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.calibration.ranges import merged
from costmodel.certainty import calibrated_on, falls_back
from costmodel.fingerprint import calibration_id
from costmodel.scenario import Scenario
from tests.scenarios import scenario_of


def of(cluster: str, precision: str = "bf16", framework: str = "megatron-core") -> Scenario:
    return scenario_of("llama-3.1-8b", cluster, 16, 16, 4096, precision=precision, framework=framework)


def row(name: str, **key: str) -> ParameterRow:
    return ParameterRow(name=name, value=1, provenance="calibrated", source="a test", **key)  # type: ignore[arg-type]


def test_parameters_whose_rows_are_about_the_same_stand_together() -> None:
    rows = {
        "a": row("a", family="hopper"),
        "b": row("b"),
        "c": row("c", family="hopper"),
        "d": row("d", accelerator="h100", precision="fp8", framework="torchtitan"),
        "e": row("e"),
    }
    assert [basis.text for basis in bases_of(rows, "abcde")] == [
        "a and c of hopper",
        "general values for b and e",
        "d of h100 in fp8 under torchtitan",
    ]


@pytest.mark.parametrize(
    ("cluster", "precision", "own", "said"),
    [
        ("dgx-h100", "bf16", True, "gemm_efficiency of hopper in bf16"),
        ("gb200-nvl72", "bf16", True, "gemm_efficiency of gb200 in bf16"),
        ("h800-8x400g", "bf16", False, "no run on h800-sxm5-80gb"),
        ("tpu-v4", "bf16", False, "gemm_efficiency of tpu in bf16"),
        ("rtx4090-8x100g", "bf16", False, "general values for gemm_efficiency"),
        # Rows of another precision, that the recipe is calibrated like.
        ("dgx-h100", "fp8-blockwise", True, "gemm_efficiency of hopper in fp8"),
    ],
)
def test_an_answer_names_what_it_rests_on(cluster: str, precision: str, own: bool, said: str) -> None:
    found = calibrated_on(of(cluster, precision))
    assert found.own_runs is own
    assert said in found.text
    names = [name for basis in found.bases for name in basis.parameters]
    assert sorted(names) == ["attention_efficiency", "compute_multiplier", "gemm_efficiency", "pointwise_efficiency"]


@pytest.mark.parametrize(
    ("cluster", "precision", "less"),
    [
        ("dgx-h100", "bf16", False),
        ("h800-8x400g", "bf16", True),
        ("rtx4090-8x100g", "bf16", True),
        ("dgx-h100", "fp8-blockwise", True),
    ],
)
def test_what_rests_on_less_than_runs_of_its_own_falls_back(cluster: str, precision: str, less: bool) -> None:
    assert falls_back(of(cluster, precision)) is less


def test_a_level_of_ones_own_is_named() -> None:
    """What ``calibrate --runs`` finds of a place is a level of all terms."""
    scenario = of("dgx-h100")
    level = row("time_level", accelerator="h100-sxm5-80gb", framework="megatron-core")
    shipped = scenario.calibration
    own = shipped.model_copy(update={"parameters": (*shipped.parameters, level)})
    found = calibrated_on(scenario.model_copy(update={"calibration": Calibration.model_validate(own.model_dump())}))
    assert "time_level of h100-sxm5-80gb under megatron-core" in found.text


def test_nothing_is_said_of_runs_that_a_calibration_does_not_name() -> None:
    """As files of earlier versions; and such a file keeps its id, since no price rests on it."""
    scenario = of("h800-8x400g")
    shipped = scenario.calibration
    ranges = tuple(entry.model_copy(update={"ran_on": ()}) for entry in shipped.ranges)
    earlier = shipped.model_copy(update={"ranges": ranges})
    found = calibrated_on(scenario.model_copy(update={"calibration": earlier}))
    assert found.own_runs is None
    assert "no run" not in found.text
    assert calibration_id(earlier) == calibration_id(shipped)


def test_devices_of_several_fits_are_joined() -> None:
    (entry,) = (entry for entry in of("dgx-h100").calibration.ranges if (entry.family, entry.framework) == KIND)
    (joined,) = merged([entry], [entry.model_copy(update={"ran_on": ("h800-sxm5-80gb",)})])
    assert joined.ran_on == ("h100-sxm5-80gb", "h800-sxm5-80gb")


KIND = ("hopper", "megatron-core")
