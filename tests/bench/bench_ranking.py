"""How fast plans are ranked, and how long whole searches take. Run it with `make bench`, or from the root of the tree:

    python -m tests.bench.bench_ranking

It measures (a) the ranking form on the whole space of Llama 3.1 405B on 16,384 H100, (b) the same model asked for one
plan at a time, in the same run, and (c) nine searches from the question to the proof.
"""

from __future__ import annotations

import time

import numpy as np

from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.table import PlanTable, stage_table
from planner.search.answer import status_of
from planner.search.request import SearchRequest
from planner.search.rows import expand
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import every_row

REPEATS = 5
ONE_BY_ONE = 300
MOST_ROWS = 2_000_000

QUESTIONS = (
    ("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192),
    ("llama-3.1-405b", "dgx-h100", 1024, 2048, 8192),
    ("llama-3.1-70b", "dgx-h100", 488, 488, 8192),
    ("mixtral-8x22b", "dgx-h100", 128, 1024, 8192),
    ("deepseek-v3", "h800-8x400g", 2048, 15360, 4096),
    ("llama-2-7b", "dgx-a100-80gb", 64, 64, 131072),
    ("llama-3.2-1b", "rtx4090-1", 1, 64, 4096),
    ("llama-3.1-405b", "gb200-nvl72", 1152, 1152, 8192),
    ("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096),
)

OTHERS = "171-1,330; 1,700; 7 plans/s"


def all_plans(scenario: Scenario) -> PlanTable:
    """Every legal plan of every legal mesh."""
    request = SearchRequest(scenario=scenario)
    table, _ = expand(request, every_row(request))
    return table.take(legal_mask(scenario, table))


def seconds_to_price(facts: Facts, scenario: Scenario, table: PlanTable) -> float:
    """Processor seconds of the ranking form, stages included."""
    started = time.process_time()
    predict(facts, table, stage_table(scenario, table))
    return time.process_time() - started


def ranking() -> None:
    """Plans per second and core: the whole space at once, and one plan at a time."""
    scenario = scenario_of(*QUESTIONS[0])
    facts, table = Facts.of(scenario), all_plans(scenario)
    whole = len(table)
    if whole > MOST_ROWS:
        table = table.take(np.random.default_rng(0).choice(whole, size=MOST_ROWS, replace=False))
    best = min(seconds_to_price(facts, scenario, table) for _ in range(REPEATS))
    some = np.linspace(0, len(table) - 1, ONE_BY_ONE).astype(np.int64)
    alone = sum(seconds_to_price(facts, scenario, table.take(some[i : i + 1])) for i in range(ONE_BY_ONE))
    together, single = len(table) / best, ONE_BY_ONE / alone
    print(f"Ranking form, {' '.join(map(str, QUESTIONS[0]))}: {whole:,} plans, {len(table):,} of them priced")
    print(f"  all at once   {together:>12,.0f} plans/s per core (best of {REPEATS})")
    print(f"  one by one    {single:>12,.0f} plans/s per core ({ONE_BY_ONE} plans)")
    print(f"  ratio         {together / single:>12,.0f}")
    print(f"  for context   other planners on such a machine: {OTHERS}")


def searches() -> None:
    """Wall and processor seconds of whole searches; the first also loads the solver."""
    heads = ("model", "cluster", "devices", "batch", "seq_len")
    print(f"\n{heads[0]:<16}{heads[1]:<15}{heads[2]:>8}{heads[3]:>7}{heads[4]:>8}", end="")
    print(f"  {'status':<11}{'seconds':>8}{'CPU s':>8}{'meshes':>9}{'priced':>9}{'listed':>8}{'plans':>7}{'within':>8}")
    for question in QUESTIONS:
        request = SearchRequest(scenario=scenario_of(*question))
        started, busy = time.perf_counter(), time.process_time()
        outcome = Search(request).run()
        elapsed, busy = time.perf_counter() - started, time.process_time() - busy
        model, cluster, devices, batch, seq_len = question
        print(f"{model:<16}{cluster:<15}{devices:>8,}{batch:>7,}{seq_len:>8,}", end="")
        print(f"  {status_of(outcome):<11}{elapsed:>8.2f}{busy:>8.2f}{outcome.meshes:>9,}", end="")
        print(f"{outcome.plans_considered:>9,}{outcome.master_solutions:>8,}", end="")
        print(f"{len(outcome.best):>7,}{outcome.within:>8,}")


if __name__ == "__main__":
    ranking()
    searches()
