"""What the page of a search makes of an answer's plans: pictures, the sorted table in parts, what is kept in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from api.dashboard.searches.kept import KeptAnswers, Known
from api.dashboard.searches.objective_columns import RankedBy, ranked_by
from api.dashboard.searches.pictures import axes_of, front_of
from api.dashboard.searches.ranking import SHOWN, TableQuery, table_of

_GIB = 2**30


def entry(rank: int, step: float, gib: float, **axes: Any) -> dict[str, Any]:
    plan: dict[str, Any] = dict.fromkeys(("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch_size"), 1)
    plan |= {"num_microbatches": 4, "zero_stage": 1, "dp_replicate": 1, "dp_shard": 1, "cp_comm_type": "p2p"}
    plan |= {"recompute": "none", "layers_per_stage": [8], "devices_used": 8, **axes}
    memory = {"peak_bytes": int(gib * _GIB), "usable_bytes": 70 * _GIB}
    prediction = {"step_time_s": step, "step_time_interval_s": [step, 2 * step], "tokens_per_s_per_device": 1 / step}
    prediction |= {"mfu": 0.5, "time": {"mlp": step}, "memory": memory}
    return {"rank": rank, "id": f"{rank:032x}", "plan": plan, "prediction": prediction}


def many(count: int) -> list[dict[str, Any]]:
    return [entry(rank, 1 + rank / 100, 20 + rank * 7 % 50, tp=2 ** (rank % 4)) for rank in range(1, count + 1)]


def test_the_front_is_what_no_other_beats_in_time_and_memory() -> None:
    plans = [entry(1, 1.0, 60), entry(2, 1.1, 65), entry(3, 1.2, 40), entry(4, 1.2, 39), entry(5, 1.3, 39)]
    chart = front_of({"plans": plans})
    assert chart is not None
    others, front = chart.series
    assert list(zip(front.x, front.y, strict=True)) == [(1.0, 60), (1.2, 39)]
    assert list(zip(others.x, others.y, strict=True)) == [(1.1, 65), (1.2, 40), (1.3, 39)]
    assert front.strong == {0, 1}
    assert front.links == (f"/plans/{plans[0]['id']}", f"/plans/{plans[3]['id']}")
    assert chart.marks[0].value == 70


def test_an_answer_with_a_front_of_its_own_shows_that_and_links_what_is_stored() -> None:
    plans = [entry(1, 1.0, 60), entry(2, 1.1, 65)]
    chart = front_of({"plans": plans, "pareto": [plans[0], entry(99, 3.0, 10)]})
    assert chart is not None
    others, front = chart.series
    assert front.x == (1.0, 3.0)
    assert front.links == (f"/plans/{plans[0]['id']}", "")
    assert others.x == (1.1,)


def test_one_plan_makes_no_picture_and_a_thousand_make_a_light_one() -> None:
    alone = [entry(1, 1.0, 60)]
    assert front_of({"plans": alone}) is None
    assert axes_of(alone) is None
    chart, lines = front_of({"plans": many(1000)}), axes_of(many(1000))
    assert chart is not None
    assert lines is not None
    assert chart.series[0].name == "the best 300 others"
    assert len(chart.series[0].x) == 300
    assert len(lines.lines) == 100


def test_axes_in_which_plans_agree_are_left_out() -> None:
    plans = [entry(1, 1.0, 60, tp=8), entry(2, 1.1, 65, tp=2, recompute="full")]
    chart = axes_of(plans)
    assert chart is not None
    assert [axis.title for axis in chart.axes] == ["tp", "recompute", "memory", "step"]
    assert [line.values for line in chart.lines] == [(8, 1, 60, 1.0), (2, 0, 65, 1.1)]
    assert [line.strong for line in chart.lines] == [True, False]


def test_a_large_answer_is_shown_in_parts_and_keeps_what_is_chosen_elsewhere() -> None:
    plans = many(250)
    chosen = plans[0]["id"]
    table = table_of("/searches/x", plans, TableQuery(start=201, plan=[chosen]))
    assert [row.rank for row in table.rows] == list(range(201, 251))
    assert table.elsewhere == [chosen]
    assert (table.earlier, table.later) == ("/searches/x?from=101", "")
    beyond = table_of("/searches/x", plans, TableQuery(start=9999, sort="step", order="desc"))
    assert len(beyond.rows) == 50
    assert beyond.rows[-1].rank == 1
    assert beyond.earlier == "/searches/x?sort=step&order=desc&from=101"
    assert len(table_of("/searches/x", plans, TableQuery()).rows) == SHOWN


@pytest.mark.parametrize("sort", ["tokens", "peak", "fit", "held", "layers", "zero", "cp_by", "interval"])
def test_every_kind_of_column_sorts_both_ways_and_keeps_the_ranks_of_equals(sort: str) -> None:
    plans = many(40)
    for order in ("asc", "desc"):
        rows = table_of("/x", plans, TableQuery(sort=sort, order=order)).rows  # type: ignore[arg-type]
        assert {row.rank for row in rows} == set(range(1, 41))
    if sort in ("fit", "held", "layers", "zero", "cp_by"):
        assert [row.rank for row in rows] == list(range(1, 41))


def test_what_plans_are_ranked_by_stands_first() -> None:
    plans = [entry(1, 2.0, 60, devices_used=4), entry(2, 1.0, 60, devices_used=16)]
    for plan in plans:
        plan["plan"] |= {"global_batch_size": 100, "seq_len": 1000}
    money = table_of("/x", plans, TableQuery(sort="tokens_cost"), RankedBy(objective="cost", price=450.0))
    assert money.groups[0].name == "Ranked by cost"
    assert [cell.text for cell in money.rows[0].cells[:2]] == ["1", "10,000"]
    assert [cell.text for cell in money.rows[1].cells[:2]] == ["2", "20,000"]
    assert "currency of the price" in money.told
    few = table_of("/x", plans, TableQuery(), RankedBy(objective="fewest_devices"))
    assert [header.column.slug for header in few.headers].count("devices") == 1
    assert few.rows[0].cells[0].text == "4"
    assert table_of("/x", plans, TableQuery(sort="cost")).rows[0].rank == 1  # no price, no costs


def test_plans_of_other_batches_are_compared_per_sequence() -> None:
    plans = [entry(1, 2.0, 60, global_batch_size=200), entry(2, 1.1, 60, global_batch_size=100)]
    asked = {"scenario": {"global_batch_size": 100}, "question": {"price_per_device_hour": None}, "plans": plans}
    by = ranked_by(asked | {"objective": "step_time"})
    table = table_of("/x", plans, TableQuery(), by)
    assert table.per_sequence
    assert table.rows[1].slower == "+10.0 %"
    assert "batch" in [header.column.slug for header in table.headers]
    same = ranked_by(asked | {"objective": "step_time", "plans": plans[1:]})
    assert "batch" not in [header.column.slug for header in table_of("/x", plans[1:], TableQuery(), same).headers]


@dataclass
class _Search:
    id: str


def test_answers_are_kept_up_to_so_many_plans() -> None:
    kept = KeptAnswers(most_plans=25)
    for name in "abc":
        kept._keep(Known(search=_Search(name), scenario=None, answer={"plans": many(10)}))  # type: ignore[arg-type]
    assert list(kept._known) == ["b", "c"]
    for number in range(100):
        # Without plans each still takes room.
        kept._keep(Known(search=_Search(f"x{number}"), scenario=None, answer={}))  # type: ignore[arg-type]
    assert len(kept._known) == 25
    kept = KeptAnswers(most_plans=25)
    kept._keep(Known(search=_Search("b"), scenario=None, answer={"plans": many(10)}))  # type: ignore[arg-type]
    kept._keep(Known(search=_Search("c"), scenario=None, answer={"plans": [], "pareto": many(10)}))  # type: ignore[arg-type]
    assert kept._weight == 22
