"""``planner sweep``: every point is what ``suggest`` says of it, and what makes a curve of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from planner import sweeping
from planner.cli import asking_here
from planner.cli import sweep as sweep_command
from planner.cli.main import run
from planner.question import Question
from planner.sweeping import Sweep
from tests.scenarios import scenario_of
from tests.searches import request_of, suggest

MODEL = ("--model", "llama-3.2-1b", "--cluster", "dgx-h100")
Json = dict[str, Any]


def swept(capsys: pytest.CaptureFixture[str], *flags: str, code: int = 0) -> Json:
    assert run(["sweep", *MODEL, *flags, "--json"]) == code
    found: Json = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", f"sqlite:///{tmp_path / 'planner.db'}")


def test_every_point_is_the_answer_to_its_own_question(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--devices", "8..32,24", "--global-batch-size", "48,64", "--seq-len", "4096", "--no-store")
    found = swept(capsys, *flags, "--price-per-device-hour", "2")
    assert found["complete"]
    asked = [(point["global_batch_size"], point["devices"]) for point in found["points"]]
    assert asked == [(batch, devices) for batch in (48, 64) for devices in (8, 16, 24, 32)]
    for point in found["points"]:
        single = suggest(
            Question(
                model="llama-3.2-1b",
                cluster="dgx-h100",
                devices=point["devices"],
                global_batch_size=point["global_batch_size"],
                seq_len=4096,
                top=1,
            )
        )
        assert point["status"] == single["status"] == "optimal"
        assert point["best"] == single["best"]
        assert point["plan"] == single["plans"][0]["plan"]
        assert point["prediction"] == single["plans"][0]["prediction"]
        rate = point["prediction"]["tokens_per_s_per_device"]
        assert point["tokens_per_s"] == pytest.approx(rate * point["plan"]["devices_used"])
        assert point["cost_per_1e9_tokens"] == pytest.approx(2.0 / 3600 / rate * 1e9)


def test_efficiency_is_of_devices_at_hand_against_the_first_point(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--devices", "8,24", "--global-batch-size", "8", "--seq-len", "4096", "--no-store", "--min-used", "0.1")
    first, second = swept(capsys, *flags)["points"]
    assert first["efficiency"] == 1.0
    expected = (second["tokens_per_s"] / 24) / (first["tokens_per_s"] / 8)
    assert second["efficiency"] == pytest.approx(expected)
    assert expected < 1.0


def test_points_that_do_not_fit_say_why_in_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "llama-3.1-70b", "--devices", "8,64", "--global-batch-size", "64", "--seq-len", "8192")
    none, some = swept(capsys, *flags, "--no-store")["points"]
    assert (none["status"], none["plan"], none["reason"]) == ("infeasible", None, "memory")
    assert "GiB" in none["told"]
    assert none["efficiency"] is None
    assert some["status"] == "optimal"
    assert some["efficiency"] == 1.0


def test_points_that_can_not_be_asked_are_refused_and_the_others_answered(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--devices", "4,16", "--global-batch-size", "16", "--seq-len", "4096", "--pin", "tp=8", "--no-store")
    refused, answered = swept(capsys, *flags)["points"]
    assert refused["plan"] is None
    assert refused["reason"] in ("pin", "pins", "devices")
    assert answered["plan"]["tp"] == 8


def test_nodes_are_devices_by_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--nodes", "1..2", "--global-batch-size", "16", "--seq-len", "4096", "--no-store")
    assert [point["devices"] for point in swept(capsys, *flags)["points"]] == [8, 16]


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (("--devices", "8..", "--global-batch-size", "16", "--seq-len", "4096"), "devices"),
        (("--devices", "8", "--nodes", "1", "--global-batch-size", "16", "--seq-len", "4096"), "nodes"),
        (("--global-batch-size", "16", "--seq-len", "4096"), "devices"),
        (("--devices", "1..1000:1", "--global-batch-size", "16", "--seq-len", "4096"), "devices"),
        (("--devices", "1..32:1", "--global-batch-size", "1..32:1", "--seq-len", "4096"), "sweep"),
        (("--devices", "8..16", "--global-batch-size", "0", "--seq-len", "4096"), "global-batch-size"),
        (("--devices", "8..16", "--global-batch-size", "16", "--seq-len", "4096", "--pin", "tp=x"), "pin"),
        (
            ("--devices", "8", "--global-batch-size", "16", "--seq-len", "4096", "--no-store", "--server", "http://x"),
            "no-store",
        ),
    ],
)
def test_bad_input_names_its_field(capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], field: str) -> None:
    assert swept(capsys, *flags, code=2)["field"] == field


def test_a_sweep_has_a_bounded_number_of_points() -> None:
    question = Question(model="", cluster="", devices=1, global_batch_size=1, seq_len=1)
    many = tuple(range(1, sweeping.MOST_POINTS + 1))
    assert len(Sweep(question=question, devices=many, global_batch_sizes=(1,), seq_lens=(1,))) == len(many)
    with pytest.raises(InvalidInput, match="256 x 2 x 1 points"):
        Sweep(question=question, devices=many, global_batch_sizes=(1, 2), seq_lens=(1,))


def test_points_are_stored_and_found_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--devices", "8..16", "--global-batch-size", "16", "--seq-len", "4096")
    first = swept(capsys, *flags)
    assert all(point["search_id"] for point in first["points"])
    monkeypatch.setattr(asking_here, "_searched", lambda _: pytest.fail("searched again"))
    assert swept(capsys, *flags) == first


def test_nothing_fits_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "llama-3.1-405b", "--devices", "8..16", "--global-batch-size", "16", "--seq-len", "4096")
    found = swept(capsys, *flags, "--no-store", code=3)
    assert [point["status"] for point in found["points"]] == ["infeasible", "infeasible"]


def test_ctrl_c_leaves_the_points_that_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = sweep_command._answers

    def interrupted(*args: Any, **how: Any) -> Iterator[Any]:
        yield next(answers(*args, **how))
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_command, "_answers", interrupted)
    found = swept(capsys, "--devices", "8..64", "--global-batch-size", "64", "--seq-len", "4096", code=4)
    assert not found["complete"]
    assert [point["devices"] for point in found["points"]] == [8]


def test_the_solver_leaves_ctrl_c_to_us() -> None:
    """OR-tools' handler would put the system's own in the place of Python's once it has solved."""
    script = (
        "import os, signal; from tests.searches import suggest; from planner.question import Question\n"
        "suggest(Question(model='llama-3.2-1b', cluster='dgx-h100', devices=16, global_batch_size=64, seq_len=4096))\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('heard')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "heard\n", ran.stderr


def test_a_deadline_cuts_points_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "llama-3.1-405b", "--devices", "1024", "--global-batch-size", "1024", "--seq-len", "8192")
    (point,) = swept(capsys, *flags, "--no-store", "--max-seconds", "0.01", code=4)["points"]
    assert point["status"] in ("feasible", "unknown")


def test_people_get_a_table_with_a_line_per_point(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "llama-3.1-70b", "--devices", "8,64", "--global-batch-size", "64", "--seq-len", "8192")
    assert run(["sweep", *MODEL, *flags, "--no-store"]) == 0
    told = capsys.readouterr()
    assert "infeasible: memory" in told.out
    assert "100.0%" in told.out
    assert "memory, at 8 devices: " in told.out
    assert told.err == ""  # no bar where nobody looks


def test_what_neither_devices_nor_batch_change_is_kept_once_for_all_points() -> None:
    few, many = (request_of(scenario_of("llama-3.2-1b", "dgx-h100", n, 8 * n, 4096)) for n in (8, 64))
    assert few.of_any_size is many.of_any_size
    assert few.of_any_size is not request_of(few.scenario, ["pp=2"]).of_any_size
    longer = scenario_of("llama-3.2-1b", "dgx-h100", 8, 64, 8192)
    assert few.of_any_size is not request_of(longer).of_any_size
