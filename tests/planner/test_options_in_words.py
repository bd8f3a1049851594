"""Unusual options in words: in the answer, on the terminal, in the report of ``check``, and as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.dashboard.searches.ranking import Table, TableQuery, table_of
from costmodel.catalog.framework_catalog import load_framework
from costmodel.plan_rows import plan_of
from costmodel.scenario import Scenario
from planner.cli.main import run
from planner.cli.report import print_answer
from planner.options_in_words import options_in_words
from planner.search.answer import answer_to
from tests.checks import write_plan
from tests.scenarios import plan_row, scenario_of
from tests.searches import request_of

DENSE = scenario_of("llama-3-8b", devices=64)
EXPERTS = scenario_of("mixtral-8x7b", devices=64)
DEEPSPEED = EXPERTS.model_copy(update={"framework": load_framework("deepspeed")})
HYBRID = {"cp": 16, "cp_comm_type": "a2a+p2p"}
FLAGS = ["--model", "llama-3-8b", "--cluster", "dgx-h100", "--devices", "16", "--global-batch-size", "64"]
FLAGS += ["--seq-len", "8192"]


def words(scenario: Scenario, **changed: Any) -> list[str]:
    plan = plan_of(scenario, plan_row(256, dp=64)).model_dump(mode="json")
    return options_in_words(plan | changed, scenario)


@pytest.mark.parametrize(
    ("scenario", "changed", "told"),
    [
        (DENSE, {}, []),
        (DENSE, {"offload": "optimizer"}, ["offload optimizer"]),
        (DENSE, {"recompute": "full", "recompute_interval": 4}, ["recompute_interval 4"]),
        (DENSE, {"reshard_after": "step", "fsdp_prefetch": 0}, ["reshard_after step", "fsdp_prefetch 0"]),
        (DENSE, {"zero_stage": 1, "gradient_sync": "step"}, []),
        (DENSE, {"zero_stage": 2, "gradient_sync": "microbatch"}, []),
        (DENSE, {"zero_stage": 2, "gradient_sync": "step"}, ["gradient_sync step"]),
        (DENSE, {"zero_plus": ["hpz", "qwz"]}, ["zero_plus qwz+hpz"]),
        (DENSE, {"tp": 2, "sequence_parallel": True, "tp_overlap": False}, ["tp_overlap false"]),
        (DENSE, {"tp": 2, "sequence_parallel": False, "tp_overlap": False}, []),
        (DENSE, {"cp": 8, "cp_comm_type": "a2a", "cp_a2a_degree": 8}, []),
        (DENSE, {**HYBRID, "cp_a2a_degree": 8}, []),
        (DENSE, {**HYBRID, "cp_a2a_degree": 4}, ["cp_a2a_degree 4"]),
        (DENSE, {"cp": 8, "cp_balanced": False}, ["cp_balanced false"]),
        (EXPERTS, {"moe_dispatcher": "deduplicated"}, []),
        (EXPERTS, {"moe_dispatcher": "all_to_all"}, ["moe_dispatcher all_to_all"]),
        (DEEPSPEED, {"moe_dispatcher": "all_to_all"}, []),
        (DEEPSPEED, {"moe_dispatcher": "deduplicated"}, ["moe_dispatcher deduplicated"]),
        (
            EXPERTS,
            {"ep_overlap": True, "moe_capacity_factor": 1.25},
            ["ep_overlap true", "moe_capacity_factor 1.25"],
        ),
        (DENSE, {"recompute": "selective", "recompute_modules": ["layernorm"]}, []),
        (DENSE, {"recompute": "selective", "recompute_modules": ["mlp", "mhc"]}, ["recompute_modules mlp+mhc"]),
        (DENSE, {"recompute": "selective", "recompute_modules": []}, ["recompute_modules none"]),
    ],
    ids=lambda value: value.framework.name if isinstance(value, Scenario) else str(value),
)
def test_options_are_told_where_they_are_not_the_usual_ones(
    scenario: Scenario, changed: dict[str, Any], told: list[str]
) -> None:
    usual = {} if scenario.model.moe is None else {"moe_dispatcher": scenario.framework.known_moe_dispatchers()[0]}  # type: ignore[index]
    assert words(scenario, **usual | changed) == told


def test_a_search_tells_them(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=64, seq_len=8192)
    usual = answer_to(request_of(scenario, top=3))
    assert all(entry["options"] == [] for entry in usual["plans"])
    pinned = answer_to(request_of(scenario, ("offload=optimizer",), top=3))
    assert all(entry["options"] == ["offload optimizer"] for entry in pinned["plans"])
    for answer, count in ((usual, 0), (pinned, 3)):
        print_answer(answer)
        out = capsys.readouterr().out
        assert (" options " in out, out.count("offload optimizer")) == (count > 0, count)


def header_and_rows(out: str) -> list[str]:
    lines = out.splitlines()
    return lines[2 : lines.index(next(line for line in lines if line.startswith("Proven")))]


@pytest.mark.parametrize(
    ("width", "column", "below"),
    [(200, True, False), (112, True, False), (80, False, True)],
)
def test_no_terminal_cuts_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, column: bool, below: bool
) -> None:
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=64, seq_len=8192)
    answer = answer_to(request_of(scenario, top=3))
    for entry, told in zip(
        answer["plans"], (["reshard_after step", "gradient_sync step"], ["zero_plus qwz"], []), strict=True
    ):
        entry["options"] = told
    monkeypatch.setattr("planner.cli.report._WIDE_ENOUGH", width)
    print_answer(answer)
    table = "\n".join(header_and_rows(capsys.readouterr().out))
    assert ("options" in table.splitlines()[0]) == column
    for option in ("reshard_after step", "gradient_sync step", "zero_plus qwz"):
        assert option in table
    assert ("Options of plan 1: reshard_after step, gradient_sync step." in table) == below
    assert ("Options of plan 2: zero_plus qwz." in table) == below
    assert "Options of plan 3" not in table


def test_an_answer_that_does_not_tell_them_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """From a server of an earlier version."""
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=64, seq_len=8192)
    answer = answer_to(request_of(scenario, ("offload=optimizer",), top=1))
    del answer["plans"][0]["options"]
    print_answer(answer)
    assert "Proven best" in capsys.readouterr().out
    table = _table_of(answer["plans"])
    assert len(table.rows[0].cells) == len(_names(table))


def test_the_pages_table_has_them_where_there_are_any() -> None:
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=64, seq_len=8192)
    for pins, told in (((), False), (("offload=optimizer",), True)):
        plans = answer_to(request_of(scenario, pins, top=2))["plans"]
        table = _table_of(plans)
        names = _names(table)
        assert ("options" in names) == told
        for row in table.rows:
            cells = dict(zip(names, (cell.text for cell in row.cells), strict=True))
            assert cells.get("options") == ("offload optimizer" if told else None)


def _table_of(plans: list[dict[str, Any]]) -> Table:
    return table_of("/searches/x", [plan | {"id": str(plan["rank"])} for plan in plans], TableQuery())


def _names(table: Table) -> list[str]:
    return [column.name for group in table.groups for column in group.columns]


def test_the_report_of_a_check_tells_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = {"tp": 1, "zero_stage": 2, "gradient_sync": "step", "recompute": "selective", "recompute_modules": ["mlp"]}
    run(["check", "--plan", write_plan(tmp_path, plan), *FLAGS, "--no-best"])
    out = capsys.readouterr().out
    assert "recompute selective, gradient_sync step, recompute_modules mlp, 16 devices" in " ".join(out.split())
