"""``planner export`` and ``planner check --from`` as people and programs meet them."""

from __future__ import annotations

import json
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from planner.answering.whole_answer import whole_answer
from planner.cli.main import run
from planner.export.targets import TARGETS
from planner.search.answer import scenario_in_words
from tests.scenarios import scenario_of
from tests.searches import request_of

Json = dict[str, Any]
WHERE = ["--cluster", "dgx-h100"]


@lru_cache(maxsize=1)
def answer() -> Json:
    """An answer of suggest, as ``--json`` prints it."""
    scenario = scenario_of("llama-3.2-1b", "dgx-h100", 16, 64, 4096)
    return {"scenario": scenario_in_words(scenario), **whole_answer(request_of(scenario, top=3))}


@pytest.fixture
def plans(tmp_path: Path) -> str:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer()), encoding="utf-8")
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_every_target_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "export", "--list")
    assert code == 0
    assert all(target.name in out for target in TARGETS)
    assert all(f"{target.name}: {target.verified}" in out for target in TARGETS)
    code, out, _ = call(capsys, "export", "--list", "--json")
    listed = {entry["name"]: entry for entry in json.loads(out)}
    assert set(listed) == {target.name for target in TARGETS}
    assert all(entry["verified"] for entry in listed.values())


def test_an_answer_of_suggest_says_its_own_scenario(
    capsys: pytest.CaptureFixture[str], plans: str, tmp_path: Path
) -> None:
    out_folder = tmp_path / "out"
    code, out, err = call(capsys, "export", "--plan", plans, "--target", "megatron-lm", "--out", str(out_folder))
    assert (code, out) == (0, "")
    script = out_folder / "train.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    best = answer()["plans"][0]["plan"]
    assert f"--tensor-model-parallel-size {best['tp']}" in script.read_text(encoding="utf-8")
    assert str(script) in err
    assert [path.name for path in out_folder.iterdir() if path.name.startswith(".")] == [], "nothing half-written"


def test_a_rank_is_chosen(capsys: pytest.CaptureFixture[str], plans: str) -> None:
    def written(rank: int) -> tuple[int, Json]:
        code, out, _ = call(capsys, "export", "--plan", plans, "--rank", str(rank), "--target", "trace", "--json")
        return code, json.loads(out)

    first, third = written(1), written(3)
    assert first[0] == third[0] == 0
    assert first[1]["files"][0]["text"] != third[1]["files"][0]["text"]
    code, told = written(4)
    assert code == 2
    assert told["field"] == "rank"


def test_one_file_goes_to_stdout_and_several_need_a_folder(capsys: pytest.CaptureFixture[str], plans: str) -> None:
    code, out, _ = call(capsys, "export", "--plan", plans, "--target", "sbatch")
    assert code == 0
    assert out.startswith("#!/bin/bash\n")
    code, out, err = call(capsys, "export", "--plan", plans, "--target", "megatron-lm")
    assert (code, out) == (2, "")
    assert "--out FOLDER" in err


def test_what_is_there_is_not_replaced_unasked(capsys: pytest.CaptureFixture[str], plans: str, tmp_path: Path) -> None:
    flags = ["export", "--plan", plans, "--target", "sbatch", "--out", str(tmp_path)]
    assert call(capsys, *flags)[0] == 0
    assert call(capsys, *flags)[0] == 0, "the very same text"
    script = tmp_path / "train.sbatch"
    script.write_text("mine", encoding="utf-8")
    code, _, err = call(capsys, *flags)
    assert code == 2
    assert "--force" in err
    assert script.read_text(encoding="utf-8") == "mine"
    assert call(capsys, *flags, "--force")[0] == 0
    assert script.read_text(encoding="utf-8") != "mine"
    code, _, err = call(capsys, *flags[:-1], str(script))
    assert code == 2
    assert "a folder is expected" in err


def test_schedulers_are_told_what_people_tell_them(capsys: pytest.CaptureFixture[str], plans: str) -> None:
    asked = ["--partition", "gpu", "--account", "research", "--time-limit", "36h", "--job-name", "a b"]
    code, out, _ = call(capsys, "export", "--plan", plans, "--target", "sbatch", *asked)
    assert code == 0
    assert {"#SBATCH --partition=gpu", "#SBATCH --account=research", "#SBATCH --time=1-12:00:00"} <= set(
        out.splitlines()
    )
    code, out, err = call(capsys, "export", "--plan", plans, "--target", "sbatch", "--partition", "gpu\n#SBATCH --x")
    assert (code, out) == (2, "")
    assert err.startswith("planner: partition: ")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--target", "fortran"], "target"),
        ([], "target"),
        (["--target", "deepspeed"], "target"),
        (["--target", "megatron-lm", "--target-version", "9.9"], "target-version"),
        (["--target", "trace", "--target-version", "99"], "target-version"),
        (["--target", "megatron-lm", "--partition", "gpu", "--image", "foo:1"], "partition"),
        (["--target", "megatron-lm", "--time-limit", "1h"], "time-limit"),
        (["--target", "sbatch", "--restarts", "3"], "restarts"),
        (["--target", "ray", "--restarts", "3"], "restarts"),
        (["--target", "sbatch", "--time-limit", "9" * 400 + "h"], "time-limit"),
        (["--target", "sbatch", "--time-limit", "99999999h"], "time-limit"),
        (["--target", "sbatch", "--id", "0" * 32], "plan"),
    ],
)
def test_what_can_not_be_exported_is_named(
    capsys: pytest.CaptureFixture[str], plans: str, arguments: list[str], field: str
) -> None:
    code, out, _ = call(capsys, "export", "--plan", plans, *arguments, "--json")
    assert code == 2
    assert json.loads(out)["field"] == field


@pytest.mark.parametrize("devices", ["64", [1], True, 16.0])
def test_devices_of_an_answer_that_are_no_number_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, devices: object
) -> None:
    path = tmp_path / "answer.json"
    edited = answer() | {"scenario": answer()["scenario"] | {"devices": devices}}
    path.write_text(json.dumps(edited), encoding="utf-8")
    code, out, _ = call(capsys, "export", "--plan", str(path), "--target", "trace", "--json")
    assert code == 2
    assert json.loads(out)["field"] == "scenario.devices"


def test_an_illegal_plan_is_not_launched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"tp": 3, "devices_used": 6, "micro_batch_size": 1}), encoding="utf-8")
    flags = ["--model", "llama-3.2-1b", *WHERE, "--global-batch-size", "64", "--seq-len", "4096"]
    code, out, err = call(capsys, "export", "--plan", str(path), *flags, "--target", "trace")
    assert (code, out) == (2, "")
    assert "only legal plans can be launched" in err


def test_what_a_target_can_not_say_is_told_as_a_list(capsys: pytest.CaptureFixture[str], plans: str) -> None:
    """Megatron-LM before 0.12 has no sharding of gradients or parameters."""
    flags = ["export", "--plan", plans, "--target", "megatron-lm", "--target-version", "0.9", "--json"]
    code, out, _ = call(capsys, *flags)
    told = json.loads(out)
    assert code == 2
    assert told["type"] == "inexpressible"
    assert told["refusals"]
    assert all({"field", "value", "why"} == set(entry) for entry in told["refusals"])


ARGUMENTS = (
    "--num-layers 16 --hidden-size 2048 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--ffn-hidden-size 8192 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--kv-channels 64 --vocab-size 128256 --seq-length 4096 --max-position-embeddings 4096 --bf16 "
    "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 64 --lr 3e-4"
)


def test_arguments_of_a_framework_are_judged_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["check", "--from", "megatron", ARGUMENTS, *WHERE, "--devices", "16", "--no-best"]
    code, out, _ = call(capsys, *flags)
    assert code == 0
    assert "--tensor-model-parallel-size 2  ->  tp" in out
    code, out, _ = call(capsys, *flags, "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["plan"]["tp"], told["plan"]["dp"], told["plan"]["global_batch_size"]) == (2, 8, 64)
    assert told["read"]["target"] == "megatron-lm"
    assert "--lr" in told["read"]["ignored"]


def test_files_and_stdin_are_read_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}')
    flags = ["--model", "llama-3.2-1b", *WHERE, "--devices", "8", "--seq-len", "4096", "--no-best", "--json"]
    code, out, _ = call(capsys, "check", "--from", "deepspeed", str(path), *flags)
    assert code == 0
    assert json.loads(out)["plan"]["zero_stage"] == 2
    with path.open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert call(capsys, "check", "--from", "deepspeed", "-", *flags)[1] == out


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--from", "deepspeed", "no-such-file.json", "--model", "llama-3.2-1b"], "from"),
        (["--from", "deepspeed", "{", "--model", "llama-3.2-1b"], "from"),
        (["--from", "trace", "{}", "--model", "llama-3.2-1b"], "from"),
        (["--from", "fortran", "x", "--model", "llama-3.2-1b"], "from"),
        (["--from", "deepspeed", '{"train_batch_size": 8}'], "model"),
        (["--from", "megatron", "--bf16", "--plan", "x.json"], "plan"),
        ([], "plan"),
    ],
)
def test_a_configuration_that_can_not_be_judged_is_an_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], field: str
) -> None:
    code, out, _ = call(capsys, "check", *arguments, *WHERE, "--devices", "8", "--seq-len", "4096", "--json")
    assert code == 2
    assert json.loads(out)["field"] == field, out
