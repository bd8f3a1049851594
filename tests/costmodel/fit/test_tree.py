"""Rows of a fit: which are made, what they lie around, and which holds for a run."""

from __future__ import annotations

from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.calibration.fit.priors import load_priors
from costmodel.calibration.fit.tree import Case, Key, tree_of
from costmodel.calibration.parameters import PARAMETER_NAMES

CASES = [
    Case("h100-sxm5-80gb", "hopper", "bf16", "megatron-core", None),
    Case("h100-sxm5-80gb", "hopper", "fp8", "megatron-core", None),
    Case("h200-sxm-141gb", "hopper", "bf16", "torchtitan", None),
    Case("a100-sxm4-80gb", "ampere", "fp16", "megatron-lm-2021", "bf16"),
    Case("a100-sxm4-80gb", "ampere", "bf16", "megatron-core", None),
]


def test_the_row_that_holds_is_the_one_that_a_calibration_resolves_to() -> None:
    """Independent of the tree: a calibration of the same rows, each with a value of its own."""
    tree = tree_of(load_priors(), CASES)
    rows = [
        ParameterRow(name=row.name, value=index, **row.key._asdict(), provenance="calibrated", source="a test")
        for index, row in enumerate(tree.rows)
    ]
    calibration = Calibration(name="t", retrieved="2026-11-30", source="a test", parameters=tuple(rows))
    holding = tree.rows_of(CASES)
    for position, case in enumerate(CASES):
        resolved = calibration.resolve(
            accelerator=case.accelerator,
            family=case.family,
            precision=case.precision,
            framework=case.framework,
            precision_like=case.precision_like,
        )
        for name in PARAMETER_NAMES:
            assert holding[name][position] == float(getattr(resolved.parameters, name)), (name, case)


def test_a_parent_comes_first_is_more_general_and_of_the_same_parameter() -> None:
    tree = tree_of(load_priors(), CASES)
    made = [(index, row) for index, row in enumerate(tree.rows) if row.parent is not None]
    assert made
    for index, row in made:
        assert row.parent is not None
        assert row.parent < index
        parent = tree.rows[row.parent]
        assert parent.name == row.name
        named = {value for value in row.key if value} | ({"hopper"} if row.key.accelerator else set())
        assert {value for value in parent.key if value} <= named | {"ampere", "hopper"}
        assert sum(value is not None for value in parent.key) < sum(value is not None for value in row.key) + 1


def test_what_runs_cannot_tell_apart_is_one_row() -> None:
    """All runs of torchtitan are on hopper here: a row for torchtitan on hopper would double the one for torchtitan."""
    tree = tree_of(load_priors(), CASES)
    keys = {row.key for row in tree.rows if row.name == "compute_multiplier" and row.prior is None}
    assert Key(None, None, None, "torchtitan") in keys
    assert Key(None, "hopper", None, "torchtitan") not in keys
    assert {Key(None, "hopper", None, "megatron-core"), Key(None, "ampere", None, "megatron-core")} & keys == set()


def test_a_class_of_what_no_run_moves_is_not_made() -> None:
    tree = tree_of(load_priors(), CASES)
    assert all(tree.rows[row.parent].spread for row in tree.rows if row.parent is not None)
    assert all(
        row.key.framework != "megatron-core" for row in tree.rows if row.name == "compute_multiplier" and not row.prior
    )
