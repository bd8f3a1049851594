"""Whatever a plan cuts, its model learns what one process alone learns: losses after two updates tell.

Real processes over gloo. Stochastic gradient descent, since Adam would hide gradients of the wrong size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from planner.profiling.probe.can import refusals
from planner.profiling.probe.job import job_text
from tests.planner.probe_jobs import JOBS, MODELS, job
from tests.planner.probe_launch import WORKER, ended, started

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install '.[profiling]'")

QUICK = ("dp", "zero3", "tp", "1f1b", "tp-dp", "tp-zero3", "1f1b-dp")
_ALONE = ("model", "optimizer", "precision")
_SECONDS = 300
# Losses are about 4: the order of sums moves 32 bits by less than 1e-6, 16 bits by less than 2e-3.
_TOLERANCE = {"fp32": 2e-6, "bf16": 3e-3, "bf16-pure": 3e-3}


def _alone(name: str) -> dict[str, Any]:
    return {axis: value for axis, value in JOBS[name].items() if axis in _ALONE}


def _trained(folder: Path, names: Iterable[str], ranks: int) -> Path:
    for name in names:
        (folder / f"{name}.job.json").write_text(job_text(job(**JOBS[name])))
        alone = _alone(name)
        (folder / f"{_of_alone(alone)}.job.json").write_text(job_text(job(**alone)))
    with started(WORKER, [str(folder), str(ranks)], 1) as processes:
        codes, said = ended(processes, _SECONDS)
    assert codes == [0], said[-5000:]
    return folder


def _of_alone(axes: dict[str, Any]) -> str:
    return "-".join(["alone", *map(str, axes.values())])


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("quick"), QUICK, 4)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("rest"), [name for name in JOBS if name not in QUICK], 8)


def _check(folder: Path, name: str) -> None:
    cut = json.loads((folder / f"{name}.losses.json").read_text())
    alone = json.loads((folder / f"{_of_alone(_alone(name))}.losses.json").read_text())
    tolerance = _TOLERANCE[JOBS[name].get("precision", "fp32")]
    assert cut == pytest.approx(alone, abs=tolerance)
    assert abs(alone[2] - alone[0]) > 10 * tolerance, "the model has to learn something for losses to tell"


@pytest.mark.parametrize("name", QUICK)
def test_a_cut_model_learns_what_one_process_learns(quick: Path, name: str) -> None:
    _check(quick, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name not in QUICK])
def test_so_do_all_other_ways_to_cut_it(rest: Path, name: str) -> None:
    _check(rest, name)


def test_steps_and_peaks_of_every_rank_are_told(quick: Path) -> None:
    lines = [json.loads(line) for line in (quick / "1f1b-dp" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "step" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert [line.get("warm_up", False) for line in steps] == [True, False, False]
    for line in steps:
        assert line["tokens_per_s"] * line["step_time_s"] == pytest.approx(8 * 16)
    peaks = [line for line in lines if "peak_rss_bytes" in line][-1]
    assert len(peaks["peak_rss_bytes"]) == 4
    for peak, before in zip(peaks["peak_rss_bytes"], peaks["rss_before_model_bytes"], strict=True):
        assert 2**20 < before < peak < 2**32
    assert lines[0]["environment"]["backend"] == "gloo"
    assert lines[-1] == {"finished": True, "steps": 3}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_model_has_the_parameters_that_its_description_counts(rest: Path, quick: Path, model: str) -> None:
    folder, axes = (quick, {}) if model == "llama" else (rest, {"model": model})
    built = json.loads((folder / f"{_of_alone(axes)}.parameters.json").read_text())
    assert built == job(**axes).scenario.model.params.total


@pytest.mark.parametrize("name", JOBS)
def test_nothing_of_these_plans_is_refused(name: str) -> None:
    of = job(**JOBS[name])
    assert refusals(of.scenario, of.plan) == ()
