"""The figures, on runs and predictions small enough to work them out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from costmodel.fidelity.exclusions import Exclusion
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import Fidelity, score
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction


def run(name: str, seconds: float | None = 1.0, study: str = "one", **columns: Any) -> Run:
    return Run(**{"id": name, "group": f"{study}/m/c", "measured_step_time_s": seconds, "outcome": "ok", **columns})


def figures(
    runs: Sequence[Run], predictions: Sequence[RunPrediction], exclusions: Sequence[Exclusion] = ()
) -> Fidelity:
    by_id = {prediction.id: prediction for prediction in predictions}
    in_order = [by_id.get(run.id, RunPrediction(id=run.id)) for run in runs]
    return score(Observed.of(runs, exclusions), Predicted.of(in_order))


def time(name: str, seconds: float | None, **more: Any) -> RunPrediction:
    return RunPrediction(id=name, step_time_s=seconds, **more)


def test_errors_are_relative_to_what_was_measured_and_macro_means_over_studies() -> None:
    of_one = [1.1, 1.2, 0.7, 1.4, 2.0]
    of_two = [0.5, 0.5, 0.5, 0.5, 0.5]
    runs = [run(f"a{n}") for n in range(5)] + [run(f"b{n}", study="two") for n in range(5)] + [run("c", study="few")]
    predictions = [time(f"a{n}", value) for n, value in enumerate(of_one)]
    predictions += [time(f"b{n}", value) for n, value in enumerate(of_two)] + [time("c", 9.0)]
    found = figures(runs, predictions)
    # Errors of one: .1 .2 -.3 .4 1: median .3, mean .4, bias .2; of two: .5, .5, -.5. "few" has fewer than 5 runs.
    assert found.time_median_ape_macro == pytest.approx((0.3 + 0.5) / 2)
    assert found.time_mape_macro == pytest.approx((0.4 + 0.5) / 2)
    assert found.time_median_ape_all == pytest.approx(0.5)
    assert found.time_bias_all == pytest.approx(-0.3)
    assert (found.scorable, found.coverage) == (11, 1.0)
    assert found.per_study["one"].median_ape == pytest.approx(0.3)
    assert found.per_study["one"].bias == pytest.approx(0.2)
    assert found.per_study["few"].mean_ape == pytest.approx(8.0)


def test_tokens_per_second_stand_for_a_step_time() -> None:
    rate = run("a", None, measured_tokens_per_s_per_device=500.0, devices=8, global_batch=16, seq_len=1000)
    assert figures([rate], [time("a", 5.0)]).time_median_ape_all == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("columns", "scorable"),
    [
        ({}, 1),
        ({"task": "pretrain", "tier": "B"}, 1),
        ({"task": "Pre-Training", "outcome": "COMPLETED"}, 1),
        ({"outcome": ""}, 1),
        ({"task": "lora"}, 0),
        ({"task": "sft"}, 0),
        ({"tier": "C"}, 0),
        ({"tier": "c"}, 0),
        ({"outcome": "oom"}, 0),
        ({"outcome": "fail(oom_or_crash)"}, 0),
        ({"measured_step_time_s": None}, 0),
        ({"measured_step_time_s": None, "measured_tokens_per_s_per_device": 5.0, "devices": 8}, 0),
    ],
)
def test_what_is_scorable(columns: dict[str, Any], scorable: int) -> None:
    assert figures([run("a", **columns)], [time("a", 1.0)]).scorable == scorable


def test_coverage_says_why_runs_are_not_predicted() -> None:
    runs = [run(name) for name in "abcdef"] + [run("g", tier="C")]
    predictions = [
        time("a", 1.0),
        time("b", None, reason="no peak"),
        time("c", None, reason="no peak"),
        time("d", 0.0, reason="nonsense"),
        time("e", None),
        time("g", None, reason="not scorable anyway"),
    ]
    found = figures(runs, predictions)
    assert found.coverage == pytest.approx(1 / 6)
    assert found.not_covered == {
        "no peak": 2,
        "nonsense": 1,
        "no reason given": 2,
    }


def test_runs_that_nothing_judges_are_counted_by_what_stands_in_the_way() -> None:
    unmeasured: dict[str, Any] = {"seconds": None}
    runs = [
        run("timed"),
        run("weighed", **unmeasured, measured_peak_mem_gb=50.0),
        run("context", tier="C", task="lora"),
        run("lora1", task="LoRA"),
        run("lora2", task="LoRA", outcome="oom"),
        run("oom", outcome="OOM"),
        run("likely", outcome="fail", notes="Likely_OOM (same layout ran)"),
        run("crash", outcome="fail"),
        run("unclear", outcome="so-so"),
        run("stalled", devices=512),
        run("rate", **unmeasured, measured_tokens_per_s_per_device=500.0),
        run("away", **unmeasured, measured_peak_mem_gb=50.0, offload="optimizer"),
        run("blank", **unmeasured),
    ]
    exclusion = Exclusion(name="stalled", study="one", devices=512, left_out_of=("time",), reason="it stalls")
    observed = Observed.of(runs, [exclusion])
    assert observed.judged == 2
    assert observed.not_judged == {
        "task 'LoRA' is not pretraining": 2,
        "ran out of memory: counts for recall and ranking": 2,
        "context only (tier C)": 1,
        "outcome 'fail' does not say that memory was why": 1,
        "outcome 'so-so' is not understood; ok, oom or fail is expected": 1,
        "left out of the time figures, see excluded": 1,
        "tokens per second make no step time without devices, global_batch and seq_len": 1,
        "memory under offload is not judged, and no time was measured": 1,
        "neither time nor memory was measured: counts for recall": 1,
    }
    assert observed.judged + sum(observed.not_judged.values()) == len(runs)


def test_interval_coverage_counts_runs_that_have_an_interval() -> None:
    runs = [run(name) for name in "abc"]
    predictions = [
        time("a", 1.2, step_time_low_s=0.9, step_time_high_s=1.5),
        time("b", 1.5, step_time_low_s=1.2, step_time_high_s=1.8),
        time("c", 1.5),
    ]
    found = figures(runs, predictions)
    assert (found.interval_coverage, found.interval_rows) == (0.5, 2)
    assert found.interval_median_width == pytest.approx((0.5 + 0.4) / 2)


def test_intervals_of_memory_and_of_what_lies_beyond_the_range_are_counted_apart() -> None:
    runs = [run(f"m{n}", measured_peak_mem_gb=50.0) for n in range(4)]
    ends = [(40.0, 60.0), (51.0, 60.0), (30.0, 49.0), (50.0, 50.0)]
    predictions = [
        RunPrediction(
            id=f"m{n}",
            step_time_s=1.0,
            step_time_low_s=0.5 if n < 3 else 1.5,
            step_time_high_s=2.0 + n,
            peak_mem_gb=50.0,
            peak_mem_low_gb=low,
            peak_mem_high_gb=high,
            doublings_beyond=1.0 if n >= 2 else 0.0,
        )
        for n, (low, high) in enumerate(ends)
    ]
    found = figures(runs, predictions)
    assert found.mem_interval_coverage == 0.5
    assert found.mem_interval_median_width == pytest.approx((0.18 + 0.38) / 2)
    assert found.per_study["one"].mem_interval_coverage == 0.5
    assert (found.beyond_rows, found.beyond_coverage) == (2, 0.5)
    assert found.beyond_median_width == pytest.approx((3.5 + 3.5) / 2)
    assert found.interval_coverage == 0.75


def test_memory_is_judged_where_the_state_is_on_the_device() -> None:
    runs = [run(f"m{n}", measured_peak_mem_gb=50.0) for n in range(5)]
    runs += [run("away", measured_peak_mem_gb=50.0, offload="optimizer on the CPU"), run("unknown")]
    runs[0] = run("m0", measured_peak_mem_gb=50.0, offload="None")
    predictions = [RunPrediction(id=f"m{n}", peak_mem_gb=50.0 + 5 * n) for n in range(5)]
    predictions += [RunPrediction(id=name, peak_mem_gb=500.0) for name in ("away", "unknown")]
    found = figures(runs, predictions)
    assert found.mem_rows == 5
    assert found.mem_median_ape_all == pytest.approx(0.2)
    assert found.mem_median_ape_macro == pytest.approx(0.2)


def test_recalls_count_runs_with_a_verdict_only() -> None:
    runs = [
        run("oom1", None, outcome="CUDA out of memory"),
        run("oom2", None, outcome="fail(oom_or_crash)", notes="Likely_OOM (same layout ran)"),
        run("crash", None, outcome="fail(oom_or_crash)", notes="likely_crash"),
        run("fits1"),
        run("fits2"),
        run("fits3"),
    ]
    said = {"oom1": False, "oom2": True, "crash": False, "fits1": True, "fits2": False, "fits3": None}
    found = figures(runs, [RunPrediction(id=name, feasible=fits) for name, fits in said.items()])
    assert (found.oom_recall, found.oom_rows) == (0.5, 2)
    assert (found.fit_recall, found.fit_rows) == (0.5, 2)


PLANS = [("a", 1, 1.0), ("b", 2, 2.0), ("c", 4, 3.0), ("d", 8, 4.0), ("e", 16, 5.0)]


def cell(**columns: Any) -> list[Run]:
    return [run(name, seconds, tp=tp, devices=16, **columns) for name, tp, seconds in PLANS]


def test_a_cell_ranks_plans_of_one_question() -> None:
    found = figures(cell(), [time(name, 10.0 - seconds) for name, _, seconds in PLANS])
    assert (found.cells, found.spearman_mean) == (1, pytest.approx(-1.0))
    # The predictor's first is e: 1 - 1/5; the best of its three is c: 1 - 1/3.
    assert found.regret_top1_mean == found.regret_top1_median == pytest.approx(0.8)
    assert found.regret_top3_mean == pytest.approx(2 / 3)
    (ranked,) = found.per_cell
    assert (ranked.cell.study, ranked.cell.devices, ranked.plans) == ("one", 16, 5)


def test_four_plans_or_another_batch_make_no_cell() -> None:
    predictions = [time(name, seconds) for name, _, seconds in PLANS]
    assert figures(cell()[:4], predictions).cells == 0
    assert figures([*cell()[:4], *cell(global_batch=8)[4:]], predictions).cells == 0


def test_twins_are_one_plan_with_the_median_of_their_times() -> None:
    twins = [run("a2", 9.0, tp=1, devices=16), run("a3", 1.5, tp=1, devices=16)]
    predictions = [time(name, seconds) for name, _, seconds in PLANS] + [time("a2", 7.0), time("a3", 7.0)]
    found = figures([*cell(), *twins], predictions)
    assert found.per_cell[0].plans == 5
    # a is measured 1.0, 9.0, 1.5: 1.5, still the best; its first prediction counts, so it is picked.
    assert found.regret_top1_mean == 0.0


def test_picking_what_ran_out_of_memory_costs_everything_unless_it_is_refused() -> None:
    runs = [*cell(), run("f", None, tp=32, devices=16, outcome="oom")]
    predictions = [time(name, seconds) for name, _, seconds in PLANS]
    assert figures(runs, [*predictions, time("f", 0.1)]).regret_top1_mean == 1.0
    assert figures(runs, [*predictions, time("f", 0.1, feasible=False)]).regret_top1_mean == 0.0


def test_exclusions_leave_runs_out_of_the_figures_they_name() -> None:
    slow = run("slow", 50.0, tp=32, devices=16, measured_peak_mem_gb=75.0)
    runs = [*cell(), slow]
    predictions = [time(name, seconds) for name, _, seconds in PLANS] + [time("slow", 0.5, peak_mem_gb=75.0)]
    thrash = {"name": "thrashing", "study": "one", "peak_mem_gb_above": 70, "reason": "it thrashes"}
    kept = figures(runs, predictions)
    timeless = figures(runs, predictions, [Exclusion(**thrash, left_out_of=("time",))])
    gone = figures(runs, predictions, [Exclusion(**thrash, left_out_of=("time", "ranking"))])
    other = figures(runs, predictions, [Exclusion(**{**thrash, "study": "two"}, left_out_of=("time", "ranking"))])
    assert [found.scorable for found in (kept, timeless, gone, other)] == [6, 5, 5, 6]
    assert [found.regret_top1_mean == pytest.approx(0.98) for found in (kept, timeless, other)] == [True] * 3
    assert gone.regret_top1_mean == 0.0
    assert timeless.excluded == {"thrashing": 1}
    assert kept.mem_rows == gone.mem_rows == 1


def test_no_runs_at_all_leave_figures_blank() -> None:
    found = figures([], [])
    assert (found.scorable, found.coverage, found.cells) == (0, None, 0)
    assert found.time_median_ape_macro is None
    assert found.oom_recall is None


def test_figures_are_json_under_their_names() -> None:
    found = json.loads(json.dumps(figures(cell(), [time("a", 1.0)]).as_dict(), allow_nan=False))
    names = (
        "scorable coverage time_median_ape_macro time_mape_macro time_median_ape_all time_bias_all mem_median_ape_all "
        "mem_median_ape_macro mem_rows oom_recall fit_recall oom_rows fit_rows cells spearman_mean regret_top1_mean "
        "regret_top1_median regret_top3_mean"
    )
    assert set(names.split()) <= found.keys()
    ranked = figures(cell(), [time(name, 1.0) for name, _, _ in PLANS]).as_dict()["per_cell"][0]
    assert ranked["study"] == "one"
    assert ranked["regret_top3"] > 0
