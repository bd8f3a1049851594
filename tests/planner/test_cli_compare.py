"""``planner compare`` and ``planner calibrate --from-db``: what was measured, beside what was predicted, and used."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from costmodel.calibration.calibration import load_calibration
from db.records import Measurement
from db.store import Store
from planner.cli.main import run

SCENARIO = [
    *("--model", "llama-3-8b", "--cluster", "dgx-h100", "--devices", "16", "--global-batch-size", "64"),
    *("--seq-len", "4096", "--top", "6"),
]
Told = tuple[int, str, str]
Call = Callable[..., Told]


@pytest.fixture
def call(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command on a database of its own: (exit code, stdout, stderr)."""
    monkeypatch.setenv("PLANNER_DATABASE_URL", sqlite_url)

    def called(*arguments: str) -> Told:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return called


@pytest.fixture
def plans(call: Call) -> list[dict[str, Any]]:
    """The stored plans of an answer."""
    code, out, _ = call("suggest", *SCENARIO, "--json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["plans"]
    return found


def measure(url: str, plan: dict[str, Any], **changes: Any) -> None:
    now = datetime.now(UTC)
    fields = {
        "id": uuid4().hex,
        "plan_id": plan["id"],
        "status": "ok",
        "step_time_s": None,
        "tokens_per_s_per_device": None,
        "peak_allocated_bytes": None,
        "peak_reserved_bytes": None,
        "steps": None,
        "job_id": None,
        "environment": {},
        "note": "",
        "log_tail": "",
        "created_by": None,
        "measured_at": now,
        "created_at": now,
    }
    with Store.open(url) as store, store.writing() as repos:
        repos.measurements.add(Measurement(**(fields | changes)))


def slower(url: str, plans: list[dict[str, Any]], times: float) -> None:
    """As if everything took so many times as long as predicted."""
    for plan in plans:
        measure(url, plan, step_time_s=times * plan["prediction"]["step_time_s"])


def test_measured_stands_beside_predicted(call: Call, plans: list[dict[str, Any]], sqlite_url: str) -> None:
    first, second, third = plans[:3]
    peak = first["prediction"]["memory"]["peak_bytes"]
    measure(sqlite_url, first, step_time_s=2.0 * first["prediction"]["step_time_s"], peak_allocated_bytes=peak // 2)
    measure(sqlite_url, second, tokens_per_s_per_device=second["prediction"]["tokens_per_s_per_device"])
    measure(sqlite_url, second, status="out_of_memory")

    code, out, err = call("compare", *(f"--plan={plan['id']}" for plan in (first, second, third)), "--json")

    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [row["status"] for row in found["rows"]] == ["ok", "ok", "out_of_memory", None]
    assert [row["measured_over_predicted"] for row in found["rows"]] == [
        pytest.approx(2.0),
        pytest.approx(1.0),
        None,
        None,
    ]
    assert [row["inside_interval"] for row in found["rows"]] == [False, True, None, None]
    assert (found["timed"], found["inside_interval"], found["pairs_in_order"]) == (2, 1, 0.0)
    assert found["measured_over_predicted"] == pytest.approx(1.5)
    assert found["memory_over_predicted"] == pytest.approx(0.5, abs=1e-6)


def test_the_table_says_how_far_off_it_was(call: Call, plans: list[dict[str, Any]], sqlite_url: str) -> None:
    slower(sqlite_url, plans[:3], 1.1)
    code, out, _ = call("compare", *(f"--plan={plan['id']}" for plan in plans[:4]))
    assert code == 0
    assert "3 step times measured: a median of 1.10 of the predicted" in out
    assert "Pairs of plans in the predicted order: 100%" in out
    assert "not measured" in out


def test_without_measurements_it_says_so(call: Call, plans: list[dict[str, Any]]) -> None:
    code, out, _ = call("compare", "--plan", plans[0]["id"])
    assert code == 3
    assert "No time was measured." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say what to compare"),
        (("--study", "none"), "no study of that name"),
        (("--plan", "0" * 32), "the id of a stored plan"),
        (("--plan", "0" * 32, "--study", "one"), "leave one out"),
    ],
)
def test_what_can_not_be_compared(call: Call, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = call("compare", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_what_was_measured_moves_the_next_suggestion(
    call: Call, plans: list[dict[str, Any]], sqlite_url: str, tmp_path: Path
) -> None:
    slower(sqlite_url, plans, 1.5)
    own = str(tmp_path / "own.json")

    code, out, _ = call("calibrate", "--from-db", "--out", own, "--json")

    assert code == 0
    found = json.loads(out)
    assert (found["runs"], found["figures"], found["problems"]) == (len(plans), {"time": len(plans)}, [])
    assert any(row["name"] == "time_level" and row["after"] > row["before"] for row in found["moved"])
    assert load_calibration(own).name == "published-2026-11-and-own"
    again = json.loads(call("suggest", *SCENARIO, "--calibration", own, "--json")[1])
    assert again["best"] == pytest.approx(1.5 * plans[0]["prediction"]["step_time_s"], rel=0.1)


def test_runs_and_measurements_count_together(
    call: Call, plans: list[dict[str, Any]], sqlite_url: str, tmp_path: Path
) -> None:
    measure(sqlite_url, plans[0], step_time_s=2.0, peak_allocated_bytes=50 * 2**30)
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "id,group,model_name,accelerator,devices,seq_len,global_batch,tp,pp,dp,micro_batch,recompute,framework,"
        "measured_step_time_s\nown,us/a/b,llama-3-8b,H100,16,4096,64,1,1,16,1,none,megatron-core,2.1\n",
        encoding="utf-8",
    )
    code, out, _ = call("calibrate", "--from-db", "--runs", str(runs), "--out", str(tmp_path / "own.json"), "--json")
    assert code == 0
    assert json.loads(out)["figures"] == {"time": 2, "memory": 1}


def test_what_teaches_nothing_is_told_by_reason(
    call: Call, plans: list[dict[str, Any]], sqlite_url: str, tmp_path: Path
) -> None:
    measure(sqlite_url, plans[0], step_time_s=2.0)
    # The probe of a laptop, run for a cluster of GPUs.
    for plan in plans[:2]:
        measure(sqlite_url, plan, step_time_s=900.0, peak_allocated_bytes=2**20, environment={"backend": "gloo"})
    code, out, _ = call("calibrate", "--from-db", "--out", str(tmp_path / "own.json"), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["figures"] == {"time": 1}
    (told,) = found["problems"]
    assert told.startswith(
        "2 of 3 measurements taught nothing, since they ran on CPUs, which say nothing of h100-sxm5-80gb"
    )


def test_a_database_without_measurements_teaches_nothing(call: Call, tmp_path: Path) -> None:
    code, _, err = call("calibrate", "--from-db", "--out", str(tmp_path / "own.json"))
    assert code == 2
    assert "from-db" in err
    assert "planner tune makes some" in err
    assert not (tmp_path / "own.json").exists()
