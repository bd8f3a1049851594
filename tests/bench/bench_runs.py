"""How fast the full breakdown and whole files of runs are. Run it with `make bench`, or from the root of the tree:

    python -m tests.bench.bench_runs

It measures (a) every stage and every part of thousands of plans of Llama 3.1 405B on 16,384 H100, beside the ranking
form of the same plans in the same run, and (b) the carried runs from rows to predictions.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from costmodel.facts import Facts
from costmodel.predict import predict, predict_stages
from costmodel.runs.carried import default_runs
from costmodel.runs.predictions import predict_runs
from costmodel.table import stage_table
from tests.scenarios import random_legal_plans, scenario_of

REPEATS = 5
PLANS = 5000


def best_of(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of some repetitions."""
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def breakdown() -> None:
    """Plans per second and core with every part of every stage, and without."""
    scenario = scenario_of("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192)
    facts, table = Facts.of(scenario), random_legal_plans(scenario, PLANS, seed=0)
    full = best_of(lambda: predict_stages(facts, table, stage_table(scenario, table, every_stage=True)))
    ranked = best_of(lambda: predict(facts, table, stage_table(scenario, table)))
    print(f"Llama 3.1 405B on 16,384 H100, {len(table):,} random legal plans, best of {REPEATS}")
    print(f"  full breakdown{len(table) / full:>12,.0f} plans/s per core")
    print(f"  ranking form  {len(table) / ranked:>12,.0f} plans/s per core, {full / ranked:.1f} times as fast")


def runs() -> None:
    """Seconds for the carried runs; the first time includes what is cached afterwards."""
    rows = default_runs()
    started = time.process_time()
    predict_runs(rows)
    first = time.process_time() - started
    print(f"\n{len(rows):,} published runs from rows to predictions")
    print(f"  first time    {first:>12.2f} s")
    print(f"  again         {best_of(lambda: predict_runs(rows)):>12.2f} s (best of {REPEATS})")


if __name__ == "__main__":
    breakdown()
    runs()
