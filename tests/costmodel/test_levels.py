"""Levels: recovered where many groups agree, shrunken where few do, none where nothing was seen."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.calibration.levels import Class, Levels, fit_levels

FAST: Class = ("megatron", "hopper", "bf16")
SLOW: Class = ("nanotron", "hopper", "bf16")


def fitted(truth: dict[Class, float], groups: int, runs: int = 8, seed: int = 3, spread: float = 0.1) -> Levels:
    """Levels of synthetic runs: a class is off by ``truth``, its groups by ``spread`` more, their runs by little."""
    rng = np.random.default_rng(seed)
    keys: list[Class] = []
    ratios: list[float] = []
    names: list[str] = []
    for key, level in truth.items():
        for group in range(groups):
            of_group = level + spread * rng.standard_normal()
            keys += [key] * runs
            names += [f"{key}/{group}"] * runs
            ratios += (of_group + 0.02 * rng.standard_normal(runs)).tolist()
    return fit_levels(keys, np.array(ratios), names)


def test_levels_of_well_known_classes_are_recovered() -> None:
    levels = fitted({FAST: -0.3, SLOW: 0.5}, groups=60)
    assert levels.of(FAST) == pytest.approx(-0.3, abs=0.05)
    assert levels.of(SLOW) == pytest.approx(0.5, abs=0.05)
    assert levels.factors([FAST, SLOW]) == pytest.approx(np.exp([levels.of(FAST), levels.of(SLOW)]))


def test_few_groups_move_a_level_less_than_many_and_never_past_the_truth() -> None:
    moved = [fitted({SLOW: 0.5}, groups=groups, spread=0.0).of(SLOW) for groups in (1, 3, 10, 100)]
    assert moved == sorted(moved)
    assert 0.1 < moved[0] < 0.4
    assert 0.45 < moved[-1] < 0.52


def test_a_group_has_one_vote_however_many_runs_it_has() -> None:
    keys = [SLOW] * 1002
    ratios = np.array([2.0] * 1000 + [0.5, 0.5])
    groups = ["sweep"] * 1000 + ["b", "c"]
    assert fit_levels(keys, ratios, groups).of(SLOW) < 0.5


def test_a_stalled_run_in_a_group_moves_nothing() -> None:
    ratios = np.array([0.0, 0.0, 0.0, 4.0] * 5)
    assert fit_levels([SLOW] * 20, ratios, [str(n // 4) for n in range(20)]).of(SLOW) == 0.0


@pytest.mark.parametrize("ratios", [[0.1], [0.1, -0.1, 0.05, -0.07], [0.0] * 6], ids=["one", "both ways", "right"])
def test_what_is_within_its_own_error_moves_nothing(ratios: list[float]) -> None:
    levels = fit_levels([SLOW] * len(ratios), np.array(ratios), [str(n) for n in range(len(ratios))])
    assert levels.of(SLOW) == 0.0


def test_a_class_unseen_has_the_level_of_its_parent_and_without_one_none() -> None:
    levels = fitted({SLOW: 0.5}, groups=30)
    parent = levels.of(("nanotron", "blackwell", "fp8"))
    assert parent == levels.of(("nanotron",)) > 0.3
    assert levels.of(FAST) == 0.0
    assert levels.of(()) == 0.0


def test_a_child_with_one_group_stays_near_its_parent() -> None:
    sibling: Class = ("nanotron", "hopper", "fp8")
    keys = [SLOW] * 20 + [sibling]
    ratios = np.array([0.5 + 0.01 * (n % 3 - 1) for n in range(20)] + [1.3])
    levels = fit_levels(keys, ratios, [str(n) for n in range(21)])
    assert levels.of(SLOW) == pytest.approx(0.5, abs=0.1)
    assert levels.of(SLOW) < levels.of(sibling) < 0.9
    assert levels.groups[sibling] == 1


def test_runs_without_a_ratio_count_for_nothing() -> None:
    ratios = np.array([float("nan")] * 5 + [float("inf")])
    assert fit_levels([SLOW] * 6, ratios, list("abcdef")) == Levels(values={}, groups={})
