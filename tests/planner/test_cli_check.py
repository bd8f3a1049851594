"""``planner check`` as people and programs meet it: exits, what goes where, and what the report says."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.cli.check_report import _change
from planner.cli.main import run
from tests.checks import write_plan

SCENARIO = ["--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--devices", "16"]
SCENARIO += ["--global-batch-size", "64", "--seq-len", "4096"]


def call(capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "check") -> tuple[int, str, str]:
    """Run the command line in this process; (exit code, stdout, stderr)."""
    code = run([command, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


FITTING = {"tp": 2, "pp": 4}
TOO_BIG = {"tp": 1}
ILLEGAL = {"tp": 3, "pp": 2}
OFFLOADED = {"tp": 1, "offload": "optimizer"}


@pytest.mark.parametrize(
    ("plan", "free", "code", "status", "says"),
    [
        (FITTING, 34, 0, "fits", "FITS: legal, and stage 0 needs"),
        (TOO_BIG, 34, 3, "too_big", "TOO BIG by"),
        (ILLEGAL, 34, 3, "illegal", "ILLEGAL under megatron-core 0.16: "),
        (OFFLOADED, 13, 0, "at_risk", "FITS, AT RISK: legal, and every device needs"),
    ],
)
def test_exit_code_and_verdict(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    plan: dict[str, Any],
    free: int,
    code: int,
    status: str,
    says: str,
) -> None:
    path = write_plan(tmp_path, plan)
    flags = ["--plan", path, *SCENARIO, "--no-best", "--min-free-gib", str(free)]
    found, out, err = call(capsys, *flags)
    assert (found, err) == (code, "")
    assert out.splitlines()[1].startswith(says)
    assert max(map(len, out.splitlines())) <= 200
    found, out, err = call(capsys, *flags, "--json")
    assert (found, err) == (code, "")
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert answer["status"] == status
    assert set(answer) == {
        "status",
        "rules_known",
        "plan",
        "normalised",
        "derived",
        "violations",
        "policy",
        "hints",
        "priced",
        "prediction",
        "bounds",
        "memory",
        "nearest",
        "searched",
        "best",
        "infeasibility",
        "calibration",
        "calibrated_on",
        "calibrated_range",
        "warnings",
    }


def test_bad_input_is_one_line_or_one_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_plan(tmp_path, {"tp": 0, "pp": "x"})
    code, out, err = call(capsys, "--plan", path, *SCENARIO)
    assert (code, out) == (2, "")
    assert err.startswith("planner: plan.tp: 0 is not usable; it has to be at least 1; also plan.pp: 'x'")
    assert err.count("\n") == 1
    code, out, err = call(capsys, "--plan", path, *SCENARIO, "--json")
    assert (code, err) == (2, "")
    problem = json.loads(out)
    assert (problem["type"], problem["field"], problem["value"]) == ("invalid-plan", "plan.tp", 0)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "plan: nothing is given; --plan is required"),
        (["--plan", "nowhere.json"], "plan: 'nowhere.json' is not usable; there is no such file"),
        (["--plan", "."], "plan: '.' is not usable; it can't be read"),
        (["--plan", "a\0b"], "plan: 'a\\x00b' is not usable"),
    ],
)
def test_no_plan_is_bad_input(capsys: pytest.CaptureFixture[str], flags: list[str], told: str) -> None:
    code, out, err = call(capsys, *flags, *SCENARIO)
    assert (code, out) == (2, "")
    assert err.startswith(f"planner: {told}")


def test_flags_that_are_unusable(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_plan(tmp_path, ILLEGAL)
    for flags, told in (
        (["--devices", "x"], "devices: 'x' is not usable; a whole number is expected"),
        (["--pin", "tp"], "pin: 'tp' is not usable"),
        (["--framework-version", "7"], "framework-version: '7' is not usable; known are 0.9"),
        (["--max-seconds", "0"], "max-seconds: 0.0 is not usable"),
        (["--objective", "speed"], "objective: 'speed' is not usable"),
    ):
        code, _, err = call(capsys, "--plan", path, *SCENARIO, *flags)
        assert code == 2
        assert err.startswith(f"planner: {told}")


def test_stdin_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (json.dumps(FITTING, indent="\t"), "tp: 2\npp: 4\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code, out, _ = call(capsys, "--plan", "-", *SCENARIO, "--no-best", "--json")
        assert code == 0
        assert json.loads(out)["plan"]["pp"] == 4
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, _, err = call(capsys, "--plan", "-", *SCENARIO)
    assert (code, err.split(";")[0]) == (2, "planner: plan: 'stdin' is not usable")
    monkeypatch.setattr(sys, "stdin", None)
    assert call(capsys, "--plan", "-", *SCENARIO)[0] == 2


def test_an_answer_of_suggest_is_checked_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, answer, _ = call(capsys, *SCENARIO, "--top", "2", "--json", command="suggest")
    path = write_plan(tmp_path, answer)
    code, out, err = call(capsys, "--plan", path, "--model", "llama-3.1-8b", "--cluster", "dgx-h100")
    assert code == 0
    assert err == "planner: warning: of the file, plans[0] of 2 is checked\n"
    assert "this plan is the best of those searched" in out


def test_variables_and_config_give_defaults(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "planner.toml"
    config.write_text(
        'model = "llama-3.1-8b"\nseq-len = 4096\ntop = 3\n[check]\ncluster = "dgx-h100"\n', encoding="utf-8"
    )
    monkeypatch.setenv("PLANNER_DEVICES", "16")
    path = write_plan(tmp_path, {**FITTING, "global_batch_size": 64})
    code, out, _ = call(capsys, "--plan", path, "--config", str(config), "--no-best", "--json")
    assert code == 0
    assert json.loads(out)["plan"]["dp"] == 2


def test_the_report_names_rules_numbers_and_ways_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = {"tp": 16, "micro_batch_size": 2, "framework_version": "0.15"}
    _, out, _ = call(capsys, "--plan", write_plan(tmp_path, plan), *SCENARIO)
    assert "kv_heads_divisible_by_tp: num_kv_heads 8 % tp 16 = 8, must be 0 [up to 0.15" in " ".join(out.split())
    assert "assumed   cp 1, ep 1" in out
    assert "nearest   tp 16 -> 8 (so dp 1 -> 2" in out
    assert "best      " in out
    _, out, _ = call(capsys, "--plan", write_plan(tmp_path, {"tp": 8}), *SCENARIO, "--model", "llama-3.1-405b")
    lines = out.splitlines()
    assert lines[1].startswith("TOO BIG by ")
    assert "of 71." in lines[1]
    assert lines[1].endswith(" of it optimizer")
    assert any(line.startswith("nearest   no plan fits: memory: the leanest plan") for line in lines)
    header, first = (
        line.split()
        for line in lines
        if line.startswith(("memory", "          ")) and line.split()[:1] in (["memory"], ["0"])
    )
    assert header[1:3] == ["stage", "GiB"]
    assert len(first) >= 8


HUGE = ["--model", "llama-3.1-405b", "--cluster", "dgx-h100", "--devices", "16", "--global-batch-size", "64"]
HUGE += ["--seq-len", "8192", "--framework", "deepspeed"]


@pytest.mark.parametrize(
    ("recompute", "says"),
    [
        ("full", r"TOO BIG for the hosts by (\S+) GiB per node: what is offloaded takes (\S+) GiB of host memory per "),
        (
            "none",
            r"TOO BIG by 4\d\d\.\d GiB, and for the hosts by (\S+) GiB per node: .* offloaded takes (\S+) GiB of ",
        ),
    ],
)
def test_hosts_that_are_short_are_named_with_what_they_lack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, recompute: str, says: str
) -> None:
    plan = {"tp": 1, "zero_stage": 3, "offload": "parameters", "recompute": recompute}
    code, out, _ = call(capsys, "--plan", write_plan(tmp_path, plan), *HUGE, "--no-best")
    assert code == 3
    found = re.match(says, out.splitlines()[1])
    assert found is not None
    short, needed = map(float, found.groups())
    assert short > 0
    assert short == pytest.approx(needed - 2048.0, abs=0.06)
    assert f"hosts: {needed:.1f} GiB of 2048.0 per node (166%), too big" in out
    assert "by -" not in out


def test_what_is_offloaded_is_shown_where_it_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = call(capsys, "--plan", write_plan(tmp_path, OFFLOADED), *SCENARIO, "--no-best")
    (line,) = [line.strip() for line in out.splitlines() if line.strip().startswith("hosts: ")]
    assert line.endswith("%), fits")
    _, out, _ = call(capsys, "--plan", write_plan(tmp_path, FITTING), *SCENARIO, "--no-best")
    assert "hosts: " not in out


@pytest.mark.parametrize(
    ("plan", "flags", "says"),
    [
        ({"tp": 8, "cp_comm_type": "a2a"}, [], ["FITS: legal, and", "read as   cp_comm_type p2p, not a2a: cp is 1"]),
        (
            {"tp": 4, "pp": 2, "layers_per_stage": [32, 0]},
            [],
            ["FITS: legal", "unusual   every_stage_has_a_layer: device 1 has 0 layers; no framework refuses it"],
        ),
        ({"zero_stage": 3}, ["--framework", "colossalai"], ["no rules of colossalai are known here"]),
        (
            {"tp": 2, "devices_used": 8, "dp": 8},
            [],
            ["ILLEGAL: the plan contradicts itself or its scenario, 1 rule is"],
        ),
        (
            {"tp": 3, "devices_used": 8, "dp": 4},
            [],
            ["ILLEGAL under megatron-core 0.16: ", "; it also contradicts itself or its scenario, 1 rule is broken"],
        ),
        ({"dp": 16, "micro_batch_size": 3}, [], ["hint      global_batch_size 48 or 96 would do"]),
        (
            {"cp": 2},
            ["--framework", "torchtitan"],
            ["cp_comm_type all_gather (the usual p2p breaks ring_rotation_removed)"],
        ),
        ({"tp": 8}, ["--model", "llama-3.1-405b"], ["searched  tp 1, 2, 4, 8; cp "]),
    ],
    ids=str,
)
def test_the_report_says_who_speaks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: dict[str, Any], flags: list[str], says: list[str]
) -> None:
    _, out, _ = call(capsys, "--plan", write_plan(tmp_path, plan), *SCENARIO, "--no-best", *flags)
    for text in says:
        assert text in out


def test_a_closed_stdout_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["check", "--plan", write_plan(tmp_path, FITTING), *SCENARIO]) == 5


@pytest.mark.parametrize(
    ("old", "told"), [(["hpz"], "zero_plus hpz -> none"), (["qwz", "hpz"], "zero_plus qwz,hpz -> none")]
)
def test_an_empty_list_has_a_word_in_a_change(old: list[str], told: str) -> None:
    assert _change({"axis": "zero_plus", "from": old, "to": []}) == told


def test_what_the_best_plan_gains_is_told_by_its_parts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("--plan", write_plan(tmp_path, {"tp": 8, "pp": 2, "micro_batch_size": 1}), *SCENARIO)
    _, out, _ = call(capsys, *arguments)
    assert "What decides: " in " ".join(out.split())
    _, out, _ = call(capsys, *arguments, "--json")
    found = json.loads(out)
    because, best, own = found["best"]["because"], found["best"]["prediction"], found["prediction"]
    assert because["step_time_s"] == pytest.approx(best["step_time_s"] - own["step_time_s"])
    for part, seconds in because["time"].items():
        assert seconds == pytest.approx(best["time"].get(part, 0.0) - own["time"].get(part, 0.0))
