"""How fast plans are listed out of a hundred thousand: ``python -m tests.bench.bench_store``.

Fills a database with plans of 200 scenarios and times pages of 50 under a dozen filters and sorts, the first page and
one far down, on SQLite and, where it is installed, on PostgreSQL.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from costmodel.fingerprint import digest
from db.records import Plan, PlanFilter
from db.store import Store
from tests.databases import binaries, running_server
from tests.db.samples import keep, later, new_search, plan, result, scenario

PLANS = 100_000
SCENARIOS = 200
ROUNDS = 100
PAGE = 50
LIMIT_MS = 100.0
_MODELS = tuple(f"model-{number}" for number in range(20))
_CLUSTERS = tuple((f"cluster-{number}", f"accelerator-{number // 2}") for number in range(10))

Place = tuple[Any, str] | None


def main() -> int:
    """Print the table; 1 if a page is too slow."""
    print(f"Pages of {PAGE} out of {PLANS} plans of {SCENARIOS} scenarios, {ROUNDS} rounds each")
    with TemporaryDirectory() as folder:
        slow = _measure(f"sqlite:///{Path(folder) / 'bench.db'}")
    if binaries() is None:
        print("postgresql: not installed")
        return slow
    with running_server() as server:
        return _measure(server.create()) or slow


def _measure(url: str) -> int:
    with Store.open(url) as store:
        started = perf_counter()
        search_id = fill(store)
        print(f"\n{store.backend}: filled in {perf_counter() - started:.0f} s")
        print(f"{'filter':44} {'sort':25} {'page':>6} {'least':>8} {'p50 ms':>8} {'p99 ms':>8}")
        worst = 0.0
        for name, filter in _filters(search_id).items():
            for sort in ("step_time_s", "-mfu", "-created_at"):
                for page, place in (("first", None), ("far", _far(store, filter, sort))):
                    times = sorted(_time(store, filter, sort, place) for _ in range(ROUNDS))
                    p50, p99 = times[ROUNDS // 2], times[ROUNDS * 99 // 100 - 1]
                    worst = max(worst, p99)
                    print(f"{name:44} {sort:25} {page:>6} {times[0]:8.1f} {p50:8.1f} {p99:8.1f}")
        print(f"{store.backend}: slowest p99 {worst:.1f} ms, limit {LIMIT_MS:.0f} ms")
    return int(worst > LIMIT_MS)


def _filters(search_id: str) -> dict[str, PlanFilter]:
    return {
        "none": PlanFilter(),
        "one scenario": PlanFilter(scenario_id=_scenarios()[7].id),
        "one search": PlanFilter(search_id=search_id),
        "model": PlanFilter(model=_MODELS[3]),
        "slowest model (sort and filter agree)": PlanFilter(model=_MODELS[-1]),
        "half of the accelerators' plans": PlanFilter(framework="megatron-core"),
        "model, cluster, tp, pp": PlanFilter(model=_MODELS[4], cluster=_CLUSTERS[0][0], axes={"tp": 8, "pp": 4}),
        "accelerator and memory": PlanFilter(accelerator=_CLUSTERS[4][1], max_peak_bytes=30 * 2**30),
        "rare axes": PlanFilter(axes={"tp": 8, "pp": 16, "recompute": "full"}),
        "little memory": PlanFilter(max_peak_bytes=2 * 2**30),
        "nothing passes": PlanFilter(axes={"schedule": "gpipe"}),
        "unknown model": PlanFilter(model="no such model"),
    }


def _time(store: Store, filter: PlanFilter, sort: str, place: Place) -> float:
    started = perf_counter()
    with store.reading() as repos:
        repos.plans.list(filter, sort, place, PAGE)
    return (perf_counter() - started) * 1e3


def _far(store: Store, filter: PlanFilter, sort: str) -> Place:
    """The place after some pages of the largest size."""
    place: Place = None
    with store.reading() as repos:
        for _ in range(40):
            page = repos.plans.list(filter, sort, place, 1000)
            if page.next is None:
                return place
            place = page.next
    return place


def _scenarios() -> list[Any]:
    return [
        scenario(
            model=_MODELS[number % len(_MODELS)],
            cluster=_CLUSTERS[number // len(_MODELS)][0],
            accelerator=_CLUSTERS[number // len(_MODELS)][1],
            devices=64 * (1 + number % 7),
            framework="megatron-core" if number % 2 else "torchtitan",
        )
        for number in range(SCENARIOS)
    ]


def fill(store: Store) -> str:
    """Store the plans of all scenarios, and a search that answered with ten of them; its id."""
    draw = random.Random(4)
    scenarios = _scenarios()
    keep(store, *scenarios)
    each = PLANS // SCENARIOS
    for number, of in enumerate(scenarios):
        # Larger models are slower, so that a filter may well point away from where the sort begins.
        scale = 1.0 + number % len(_MODELS)
        plans = [_plan(of, index, scale, draw) for index in range(each)]
        with store.writing() as repos:
            repos.plans.put(plans)
    with store.writing() as repos:
        answer = result(scenarios[0], plans=_plans_of(store, scenarios[0].id))
        return repos.searches.store_answer(new_search(scenarios[0]), answer, later(0)).id


def _plans_of(store: Store, scenario_id: str) -> list[Plan]:
    """Ten of the scenario's plans."""
    with store.reading() as repos:
        listed = repos.plans.list(PlanFilter(scenario_id=scenario_id), "step_time_s", None, 10)
        return repos.plans.get_many([one.id for one in listed.items])


def _plan(of: Any, index: int, scale: float, draw: random.Random) -> Plan:
    one = plan(
        of,
        draw.choice((1, 2, 4, 8)),
        scale * draw.uniform(1.0, 3.0),
        pp=draw.choice((1, 2, 4, 8, 16)),
        recompute=draw.choice(("none", "selective", "full")),
        created_at=later(index),
    )
    return replace(one, id=digest([of.id, index]))


if __name__ == "__main__":
    sys.exit(main())
