"""``--calibration`` of ``suggest`` and ``check``: a name or a file, from a flag, the environment or a config file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration.calibration import Calibration, load_calibration
from planner.calibrating import calibration_text
from planner.cli.main import run
from tests.checks import write_plan

SCENARIO = ["--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--devices", "8"]
SCENARIO += ["--global-batch-size", "16", "--seq-len", "4096"]
FEW = ["--pin", "tp=2", "--pin", "pp=1", "--top", "1"]
SUGGEST = ["suggest", *SCENARIO, *FEW, "--json"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The shipped calibration, with steps of twice the time."""
    shipped = load_calibration()
    rows = [
        row.model_copy(update={"value": 2.0 * row.value}) if row.name == "time_level" else row
        for row in shipped.parameters
    ]
    path = tmp_path / "own.json"
    path.write_text(calibration_text(Calibration(name="own", retrieved="2026-11-30", source="a test", parameters=rows)))
    return path


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(list(arguments)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_file_prices_the_plans_and_is_named(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    shipped = asked(capsys, *SUGGEST, "--no-store")
    named = asked(capsys, *SUGGEST, "--no-store", "--calibration", "published-2026-11")
    slower = asked(capsys, *SUGGEST, "--no-store", "--calibration", str(own))
    assert named["best"] == shipped["best"]
    assert slower["best"] == pytest.approx(2.0 * shipped["best"])
    assert [answer["search"]["calibration"] for answer in (shipped, slower)] == ["published-2026-11", "own"]
    assert shipped["search"]["calibrated_range"] == {"inside": True, "beyond": []}
    assert slower["search"]["calibrated_range"] == {"inside": None, "beyond": []}
    assert [answer["search"]["calibrated_on"]["own_runs"] for answer in (shipped, slower)] == [True, None]


def test_the_answer_names_what_it_rests_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tpu = ["tpu-v4" if word == "dgx-h100" else word for word in SCENARIO]
    found = asked(capsys, "suggest", *tpu, *FEW, "--no-store", "--json")["search"]["calibrated_on"]
    assert found["own_runs"] is False
    assert found["rows"][0] == {
        "parameters": ["gemm_efficiency"],
        "accelerator": None,
        "family": "tpu",
        "precision": "bf16",
        "framework": None,
    }
    assert run(["suggest", *tpu, *FEW, "--no-store"]) == 0
    assert f"Calibrated on: {found['text']}." in capsys.readouterr().out
    assert run(["check", "--plan", write_plan(tmp_path, {"tp": 2}), *tpu, "--no-best"]) == 3
    assert "no run on tpu-v4" in " ".join(capsys.readouterr().out.split())


def test_the_store_keeps_answers_of_two_calibrations_apart(
    capsys: pytest.CaptureFixture[str], own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", f"sqlite:///{tmp_path}/planner.db")
    shipped = asked(capsys, *SUGGEST)
    slower = asked(capsys, *SUGGEST, "--calibration", str(own))
    assert slower["id"] != shipped["id"]
    assert [other["id"] for other in slower["earlier"]] == [shipped["id"]]
    assert slower["plans"][0]["id"] != shipped["plans"][0]["id"]
    assert asked(capsys, *SUGGEST, "--calibration", str(own))["id"] == slower["id"]
    assert asked(capsys, *SUGGEST)["id"] == shipped["id"]


@pytest.mark.parametrize("how", ["environment", "file"])
def test_it_can_be_a_default(
    capsys: pytest.CaptureFixture[str], own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    more: list[str] = []
    if how == "environment":
        monkeypatch.setenv("PLANNER_CALIBRATION", str(own))
    else:
        (tmp_path / "planner.toml").write_text(f"[suggest]\ncalibration = '{own}'\n")
        more = ["--config", str(tmp_path / "planner.toml")]
    assert asked(capsys, *SUGGEST, "--no-store", *more)["search"]["calibration"] == "own"


def test_check_prices_by_it(capsys: pytest.CaptureFixture[str], own: Path, tmp_path: Path) -> None:
    plan = ["check", "--plan", write_plan(tmp_path, {"tp": 2}), *SCENARIO, "--no-best", "--json"]
    shipped, slower = asked(capsys, *plan), asked(capsys, *plan, "--calibration", str(own))
    assert [answer["calibration"] for answer in (shipped, slower)] == ["published-2026-11", "own"]
    times = [answer["prediction"]["step_time_s"] for answer in (shipped, slower)]
    assert times[1] == pytest.approx(2.0 * times[0])
    assert shipped["calibrated_range"]["inside"] is True


@pytest.mark.parametrize("command", ["suggest", "check"])
def test_what_is_neither_a_name_nor_a_file_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    more = ["--no-store"] if command == "suggest" else ["--plan", write_plan(tmp_path, {"tp": 2})]
    assert run([command, *SCENARIO, *more, "--calibration", "publishd-2026-11"]) == 2
    said = capsys.readouterr().err
    assert "calibration" in said
    assert "published-2026-11" in said


def test_a_server_is_sent_no_file(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    assert run([*SUGGEST, "--server", "http://127.0.0.1:9", "--calibration", str(own)]) == 2
    assert "a server takes calibrations of its own catalog by name" in capsys.readouterr().out
