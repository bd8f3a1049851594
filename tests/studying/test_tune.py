"""``planner tune`` as people use it: Ctrl-C and --resume, a folder without room, and real training with the probe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from db.store import Store
from db.urls import VARIABLE
from planner.cli.exits import Exit
from planner.cli.main import run
from tests.processes import eventually
from tests.studying.lab import PINS, SCENARIO, WAIT_S, Lab, check_study, lab_in, opened, trials_of

_PINS = [word for pin in PINS for word in ("--pin", pin)]
_QUESTION = [word for name, value in SCENARIO.items() for word in (f"--{name.replace('_', '-')}", str(value))] + _PINS
_CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def files_of(lab: Lab) -> list[str]:
    lab.launch_file()
    files = ["--launch", str(lab.folder / "launch.toml"), "--folder", str(lab.trials), "--study", "mine"]
    return ["tune", "--runner", "command", *files]


def how(lab: Lab, *more: str) -> list[str]:
    return [*files_of(lab), "--steps", "2", "--warm-up", "1", *more]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, store_url)
    lab = lab_in(tmp_path, [((), "later:until")])
    command = [sys.executable, "-m", "planner.cli.main", *how(lab, *_QUESTION, "--trials", "2", "--json")]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=dict(os.environ))
    try:
        with Store.open(store_url) as store:
            assert eventually(lambda: len(lab.starts()) == 2 or process.poll() is not None, WAIT_S)
            assert process.poll() is None, (tmp_path / "said").read_text()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=WAIT_S)
            assert process.returncode == Exit.CUT_SHORT, (tmp_path / "said").read_text()
            told = json.loads(out)
            assert (told["trials"][-1]["state"], told["trials"][-1]["worker"]) == ("running", None)
            assert lab.left() == []
            assert "Traceback" not in (tmp_path / "said").read_text()
            with store.reading() as repos:
                study = repos.studies.named("mine")
            assert study is not None
            before = [trial for trial in trials_of(store, study) if trial.state == "done"]
            lab.rules([])
            assert run([*files_of(lab), "--resume", "--trials", "2", "--json"]) == Exit.ANSWERED
            trials = check_study(store, study, lab)
            assert trials[: len(before)] == before
    finally:
        process.kill()
        process.wait()
    told = json.loads(capsys.readouterr().out)
    assert told["best"] is not None
    assert len(told["trials"]) == 2


def test_a_folder_that_cannot_be_written_is_told_in_a_line(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, sqlite_url)
    lab = lab_in(tmp_path)
    lab.trials.touch()
    assert run(how(lab, *_QUESTION, "--trials", "1")) == Exit.FAILED
    said = capsys.readouterr().err
    assert "Not a directory" in said
    assert "Traceback" not in said


def test_what_cannot_be_started_opens_no_study_and_what_a_study_is_about_stays(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, sqlite_url)
    lab = lab_in(tmp_path)
    wrong = {
        "launch: ": ["tune", "--runner", "command", "--study", "mine", *_QUESTION],
        "max-minutes: 0.0": how(lab, *_QUESTION, "--max-minutes", "0"),
    }
    for told, words in wrong.items():
        assert run(words) == Exit.BAD_INPUT
        assert told in capsys.readouterr().err
    with Store.open(sqlite_url) as store:
        with store.reading() as repos:
            assert list(repos.studies.list().items) == []
        opened(store, name="mine")
    wrong = {
        "study: 'mine' is not usable; there is a study of that name": how(lab, *_QUESTION),
        "model: 'gpt2' is not usable; a study that goes on keeps": [*files_of(lab), "--resume", "--model", "gpt2"],
        "steps: 2 is not usable": how(lab, "--resume"),
        "runner: 'slurm' is not usable; trials of mine run by command": [
            *("tune", "--resume", "--study", "mine", "--runner", "slurm")
        ],
    }
    for told, words in wrong.items():
        assert run(words) == Exit.BAD_INPUT
        assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_real_training_of_two_processes(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, sqlite_url)
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(_CONFIG), encoding="utf-8")
    asked = {
        "model": config,
        "cluster": "dgx-h100",
        "devices": 2,
        "global-batch-size": 4,
        "seq-len": 32,
        "framework": "torchtitan",
        "trials": 1,
        "steps": 2,
        "warm-up": 1,
        "folder": tmp_path / "trials",
    }
    words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    code = run(["tune", "--runner", "local", *words, "--pin", "tp=1", "--pin", "pp=1", "--pin", "cp=1", "--json"])
    out, err = capsys.readouterr()
    assert code == Exit.ANSWERED, err + out
    told = json.loads(out)
    (trial,) = told["trials"]
    assert trial["outcome"] == "ok"
    assert trial["step_time_s"] > 0.0
    assert trial["measured_over_predicted"] == pytest.approx(trial["step_time_s"] / trial["predicted_step_time_s"])
    assert trial["plan"]["devices_used"] == 2
