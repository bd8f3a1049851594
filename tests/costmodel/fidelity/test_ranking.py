"""Rank correlation and regret, on cases small enough to work out by hand and against plain shuffling."""

from __future__ import annotations

import random

import numpy as np
import pytest

from costmodel.fidelity.ranking import regret, spearman

NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b", "rho"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [5, 5, 5, 5], 0.0),
        # 1 - 6 * (1 + 1) / (4 * 15)
        ([1, 2, 3, 4], [2, 1, 3, 4], 0.8),
        # ranks 1, 2.5, 2.5, 4: covariance 4.5, variances 5 and 4.5
        ([1, 2, 3, 4], [1, 2, 2, 3], 4.5 / np.sqrt(5 * 4.5)),
    ],
)
def test_spearman(a: list[float], b: list[float], rho: float) -> None:
    assert spearman(np.array(a, dtype=float), np.array(b, dtype=float)) == pytest.approx(rho)


@pytest.mark.parametrize(
    ("measured", "predicted", "first", "of_three"),
    [
        pytest.param([1, 2, 4, 4], [1, 2, 3, 4], 0.0, 0.0, id="right"),
        pytest.param([4, 4, 2, 1], [1, 2, 3, 4], 0.75, 0.5, id="upside down"),
        pytest.param([NAN, 1, 2], [1, 2, 3], 1.0, 0.0, id="a plan that failed is worth nothing"),
        pytest.param([1, 2], [NAN, 1], 0.5, 0.5, id="a plan that is not offered is not picked"),
        pytest.param([1, 2], [NAN, NAN], 1.0, 1.0, id="nothing is offered"),
        pytest.param([1, 2], [5, 5], 0.25, 0.0, id="one of two equals"),
        # Three of four: the best is among them three times of four, else the next is worth 1/2.
        pytest.param([1, 2, 4, 4], [5, 5, 5, 5], 1 - (1 + 0.5 + 0.25 + 0.25) / 4, 0.125, id="all equal"),
        # The first is certain; two of the other three follow, with the best among them twice of three.
        pytest.param([2, 1, 4, 4], [1, 5, 5, 5], 0.5, 0.5 / 3, id="equals behind the first"),
    ],
)
def test_regret(measured: list[float], predicted: list[float], first: float, of_three: float) -> None:
    times, offered = np.array(measured, dtype=float), np.array(predicted, dtype=float)
    assert regret(times, offered, 1) == pytest.approx(first)
    assert regret(times, offered, 3) == pytest.approx(of_three)


def test_regret_is_the_mean_over_random_orders_of_equal_predictions() -> None:
    rng = random.Random(7)
    for picks in (1, 3):
        measured = [NAN if rng.random() < 0.2 else rng.uniform(1, 5) for _ in range(12)] + [1.0]
        predicted = [float(rng.randint(1, 3)) for _ in measured]
        best = np.nanmin(measured)
        losses = []
        rows = list(zip(predicted, measured, strict=True))
        for _ in range(20_000):
            rng.shuffle(rows)
            picked = [time for _, time in sorted(rows, key=lambda row: row[0])[:picks]]
            losses.append(1 - max(best / time if time == time else 0.0 for time in picked))
        spread = np.std(losses) / np.sqrt(len(losses))
        assert regret(np.array(measured), np.array(predicted), picks) == pytest.approx(np.mean(losses), abs=5 * spread)
