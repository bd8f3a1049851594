"""The command line as people and programs meet it: answers, exits, and one clear line for everything that is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from api.dashboard.words import EXCHANGES, SHORT_EXCHANGES
from costmodel.spec.plan import CP_COMM_TYPES
from planner.cli.main import run
from planner.cli.report import _CP_SHORT

SCENARIO = [
    "--model",
    "llama-3.1-8b",
    "--cluster",
    "dgx-h100",
    "--devices",
    "16",
    "--global-batch-size",
    "64",
    "--seq-len",
    "4096",
]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process, whatever was stored before; (exit code, stdout, stderr)."""
    code = run(["suggest", *arguments, "--no-store"])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = call(capsys, *SCENARIO, "--json", *arguments)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_table_names_the_scenario_and_ranks_plans(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *SCENARIO, "--top", "3")
    assert code == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("llama-3.1-8b (8.0B) on 16 x h100-sxm5-80gb (dgx-h100), 64 sequences of 4096 tokens")
    ranks = [line.split()[0] for line in lines if line.strip() and line.split()[0].isdigit()]
    assert ranks == ["1", "2", "3"]
    assert "Proven best of the space searched" in out
    assert "MFU: 6 N and the causal half of attention against the dense bf16 peak. Best plan: " in out


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--top", "2")
    assert found["status"] == "optimal"
    assert [entry["rank"] for entry in found["plans"]] == [1, 2]
    assert found["gap"] == 0
    assert found["best"] == found["plans"][0]["prediction"]["step_time_s"]


def test_pins_and_forbids_reach_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    free = answer(capsys, "--top", "1")["plans"][0]
    pinned = answer(capsys, "--top", "5", "--pin", "tp=4", "--pin", "pp=1,2", "--forbid", "recompute=none")
    for entry in pinned["plans"]:
        assert entry["plan"]["tp"] == 4
        assert entry["plan"]["pp"] in (1, 2)
        assert entry["plan"]["recompute"] != "none"
    assert pinned["best"] >= free["prediction"]["step_time_s"]


def test_warnings_go_to_stderr_and_into_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *SCENARIO, "--json", "--seq-len", "262144", "--global-batch-size", "16", "--top", "1")
    assert code == 0
    assert "max_position_embeddings 131072" in err
    assert json.loads(out)["warnings"][0] in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "llama3.1-8b"], ["model", "'llama3.1-8b'", "llama-3.1-8b"]),
        (["--cluster", "dgx-h1000"], ["cluster", "'dgx-h1000'", "dgx-h100"]),
        (["--framework", "megatron-cor"], ["framework", "'megatron-cor'", "megatron-core"]),
        (["--framework-version", "7.1"], ["framework-version", "'7.1'", "0.17"]),
        (["--precision", "bf61"], ["precision", "'bf61'", "bf16"]),
        (["--optimizer", "adamv"], ["optimizer", "'adamv'", "adamw"]),
        (["--objective", "step_tme"], ["objective", "'step_tme'", "step_time"]),
        (["--objective", "cost"], ["price-per-device-hour", "dgx-h100"]),
        (["--devices", "0"], ["devices", "0", "at least 1"]),
        (["--devices", "-8"], ["devices", "-8", "at least 1"]),
        (["--devices", "many"], ["devices", "'many'", "whole number"]),
        (["--devices", "99999999999"], ["devices", "99999999999", "at most"]),
        (["--devices", "3", "--cluster", "rtx4090-1"], ["devices", "3", "rtx4090-1", "1"]),
        (["--global-batch-size", "0"], ["global-batch-size", "0", "at least 1"]),
        (["--seq-len", "-1"], ["seq-len", "-1", "at least 1"]),
        (["--top", "0"], ["top", "0", "1 to 1000"]),
        (["--min-used", "1.5"], ["min-used", "1.5"]),
        (["--max-seconds", "0"], ["max-seconds", "above 0"]),
        (["--seed", "-1"], ["seed", "-1"]),
        (["--min-free-gib", "80"], ["min-free-gib", "80", "79.6"]),
        (["--pin", "tq=8"], ["pin", "'tq'", "tp"]),
        (["--pin", "tp"], ["pin", "'tp'", "KEY=VALUE"]),
        (["--pin", "tp=eight"], ["pin", "eight", "whole number"]),
        (["--pin", "tp=0..0"], ["pin", "tp=0..0", "at least 1"]),
        (["--pin", "tp=" + "9" * 5000], ["pin", "1000000000"]),
        (["--pin", "optimizer=adamw"], ["optimizer", "can not be pinned"]),
        (["--pin", "offload=disk"], ["offload", "'disk'", "none"]),
        (["--pin", "moe_capacity_factor=0"], ["moe_capacity_factor", "'0'", "0.1..100"]),
        (["--objective", "cost", "--cluster", "tpu-v5p"], ["price-per-device-hour", "nothing is given", "tpu-v5p"]),
        (["--min-used", "nan"], ["min-used", "nan"]),
        (["--seed", "1.5"], ["seed", "'1.5'", "whole number"]),
        (["--min-used", "most"], ["min-used", "'most'", "number"]),
        (["--forbid", "recompute=everything"], ["forbid", "'everything'"]),
        (["--server", "http://localhost:1"], ["no-store", "server"]),
        (["--allow", "magic"], ["allow", "'magic'", "offload"]),
        (["--framework", "nanotron", "--allow", "offload"], ["allow", "offload", "has none"]),
        (["--framework", "colossalai", "--allow", "offload"], ["allow", "not known here"]),
        (["--pin", "offload=disk"], ["offload", "disk", "optimizer"]),
        (["--pin", "recompute_modules=heads"], ["recompute_modules", "heads"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("as_json", [False, True], ids=["line", "problem"])
def test_bad_input_is_one_line_with_field_value_and_remedy(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str], as_json: bool
) -> None:
    code, out, err = call(capsys, *SCENARIO, *arguments, *(["--json"] if as_json else []))
    assert code == 2
    if as_json:
        assert err == ""
        problem = json.loads(out)
        assert problem["title"] == "Bad input"
        text = problem["detail"]
    else:
        assert out == ""
        assert err.count("\n") == 1
        text = err
    for words in said:
        assert words in text


def test_problem_objects_carry_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, *SCENARIO, "--model", "llama3.1-8b", "--json")
    problem = json.loads(out)
    assert problem["type"] == "unknown-name"
    assert problem["field"] == "model"
    assert problem["value"] == "llama3.1-8b"
    assert problem["nearest"][0] == "llama-3.1-8b"


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["suggest"], ["suggest", *SCENARIO, "--modle", "x"], ["--bogus"]]
)
def test_unreadable_command_lines(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--model llama-3.1-70b --cluster dgx-a100-80gb --devices 16", ["memory", "73.9 GiB"]),
        ("--pin tp=3", ["num_heads 32 % tp 3 = 2"]),
        ("--pin dp=5 --pin devices_used=..16 --min-used 0.3", ["batch", "64", "5"]),
        ("--devices 37 --min-used 1", ["batch", "37"]),
        ("--pin pp=33", ["33"]),
        ("--pin ep=2", ["experts"]),
        ("--pin vpp=1000000000", ["1000000000 chunks", "32 + 2"]),
        ("--pin dp_shard=5", ["pin dp_shard=5"]),
        ("--pin tp=8 --pin pp=4 --pin dp=4", ["tp 8 * pp 4 * dp 4 = 128 devices at least, where there are 16"]),
        ("--pin schedule=zb_v", ["zb_v", "1f1b, interleaved_1f1b"]),
        # Constraints that contradict each other, or the space, are answered and no mistake in what was typed.
        ("--pin tp=2 --pin tp=4", ["pin tp=2", "pin tp=4", "leaves tp without a value"]),
        ("--pin tp=8 --forbid tp=8", ["pin tp=8", "forbid tp=8"]),
        ("--pin tp=3..3", ["pin tp=3..3", "1, 2, 4, 8"]),
        ("--pin mbs=3..3", ["pin mbs=3..3", "micro_batch_size", "1, 2, 4, 8"]),
        ("--forbid tp=1..", ["forbid tp=1..", "1, 2, 4, 8"]),
        ("--forbid ep=1", ["forbid ep=1", "searched are 1"]),
        ("--forbid zero=0..3", ["forbid zero=0..3", "zero_stage", "0, 1, 2, 3"]),
        ("--forbid schedule=1f1b,interleaved_1f1b", ["forbid schedule=1f1b,interleaved_1f1b"]),
        (
            "--pin recompute=full --pin recompute_modules=core_attn",
            ["pin recompute=full", "go with recompute=selective"],
        ),
    ],
)
def test_what_cannot_fit_says_why(capsys: pytest.CaptureFixture[str], arguments: str, said: list[str]) -> None:
    code, out, err = call(capsys, *SCENARIO, *arguments.split())
    assert code == 3
    assert out == ""
    assert err.startswith("planner: no plan fits: ")
    assert all(line.startswith("planner: ") for line in err.splitlines())
    for words in said:
        assert words in err
    code, out, err = call(capsys, *SCENARIO, *arguments.split(), "--json")
    assert code == 3
    found = json.loads(out)
    assert found["status"] == "infeasible"
    assert found["plans"] == []
    told = [f"{part['rule']}: {part['reason']}" for part in found["infeasibility"]["conflict"]]
    assert any(words in line for line in told for words in said)


def test_a_deadline_still_gives_a_plan_and_says_how_far_it_can_be_from_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(
        capsys,
        *[
            "--model",
            "deepseek-v3",
            "--cluster",
            "h800-8x400g",
            "--devices",
            "2048",
            "--global-batch-size",
            "15360",
            "--seq-len",
            "4096",
        ],
        *("--max-seconds", "0.01", "--json"),
    )
    assert code == 4
    found = json.loads(out)
    assert found["status"] == "feasible"
    assert found["plans"]
    assert 0 < found["gap"] < 1
    assert found["bound"] < found["best"]
    assert found["proven_top_k"] is False


def test_flags_win_over_variables_which_win_over_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "planner.toml"
    config.write_text('top = 4\npin = ["tp=1"]\n[suggest]\nseq_len = 2048\n', encoding="utf-8")
    monkeypatch.setenv("PLANNER_CONFIG", str(config))
    plain = [argument for argument in SCENARIO if argument not in ("--seq-len", "4096")]

    def ask(*more: str) -> dict[str, Any]:
        code, out, _ = call(capsys, *plain, "--json", *more)
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        return found

    from_file = ask()
    assert len(from_file["plans"]) == 4
    assert {entry["plan"]["tp"] for entry in from_file["plans"]} == {1}
    assert from_file["plans"][0]["plan"]["seq_len"] == 2048
    monkeypatch.setenv("PLANNER_TOP", "3")
    assert len(ask()["plans"]) == 3
    assert len(ask("--top", "2")["plans"]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("top = ", ["TOML"]),
        ("tpo = 3", ["'tpo'", "top"]),
        ("[suggets]\ntop = 1", ["'suggets'", "suggest"]),
        ("json = true", ["'json'"]),
        ("config = 'other.toml'", ["'config'"]),
        ("max_seconds = 'soon'", ["max-seconds", "'soon'", "number"]),
    ],
)
def test_a_broken_config_file_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: list[str]
) -> None:
    config = tmp_path / "planner.toml"
    config.write_text(text, encoding="utf-8")
    code, _, err = call(capsys, *SCENARIO, "--config", str(config))
    assert code == 2
    assert err.count("\n") == 1
    for words in said:
        assert words in err


def test_one_text_in_a_file_stands_for_a_list_of_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "planner.toml"
    config.write_text('pin = "tp=2"\n', encoding="utf-8")
    found = answer(capsys, "--config", str(config), "--top", "3")
    assert {entry["plan"]["tp"] for entry in found["plans"]} == {2}


@pytest.mark.parametrize(
    "arguments",
    [("--min-used", "0.5"), ("--pin", "ep=8,16,32", "--objective", "fewest_devices")],
    ids=" ".join,
)
def test_a_deadline_holds_on_a_space_that_takes_far_longer(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    started = time.monotonic()
    code, out, _ = call(
        capsys,
        *("--model", "deepseek-v3", "--cluster", "h800-8x400g", "--devices", "2048"),
        *("--global-batch-size", "5040", "--seq-len", "4096", "--pin", "tp=1,2"),
        *("--max-seconds", "3", "--json", *arguments),
    )
    # Far above the deadline, since test machines are shared, and far below what the whole search takes.
    assert time.monotonic() - started < 20
    assert code == 4
    found = json.loads(out)
    assert found["plans"]
    assert found["bound"] <= found["best"]


def test_a_framework_that_does_not_run_there_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = call(capsys, *SCENARIO, "--cluster", "tpu-v5p", "--json", "--top", "1")
    assert "Megatron-Core runs on NVIDIA and AMD accelerators, not on those of Google" in err
    assert json.loads(out)["warnings"]


def test_a_number_beyond_all_models_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "huge.json"
    keys = {"model_type": "llama", "hidden_size": 10**20, "intermediate_size": 8192, "num_hidden_layers": 22}
    model.write_text(json.dumps(keys | {"num_attention_heads": 16, "vocab_size": 32000}), encoding="utf-8")
    code, out, err = call(capsys, *SCENARIO, "--model", str(model))
    assert (code, out) == (2, "")
    assert "hidden_size" in err
    assert err.count("\n") == 1


def test_own_model_and_cluster_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "my-model.json"
    model.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 22,
                "num_attention_heads": 16,
                "vocab_size": 32000,
            }
        ),
        encoding="utf-8",
    )
    cluster = tmp_path / "lab.yaml"
    cluster.write_text("extends: dgx-a100-80gb\nname: lab\nprice_per_device_hour: 1.5\n", encoding="utf-8")
    code, out, _ = call(
        capsys,
        *f"--model {model} --cluster {cluster} --devices 24 --global-batch-size 96 --seq-len 2048".split(),
        *["--objective", "cost", "--json", "--top", "1"],
    )
    assert code == 0
    found = json.loads(out)
    prediction, plan = found["plans"][0]["prediction"], found["plans"][0]["plan"]
    assert found["best"] == pytest.approx(1.5 * plan["devices_used"] * prediction["step_time_s"] / 3600)


@pytest.mark.parametrize(("name", "text"), [("broken.json", '{"model_type": "llama",'), ("list.json", "[1]")])
def test_a_broken_model_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    code, out, err = call(capsys, *SCENARIO, "--model", str(path))
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert name in err


def test_help_and_no_arguments_do_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "suggest" in capsys.readouterr().out
    assert run(["suggest", "--help"]) == 0
    assert "--global-batch-size" in capsys.readouterr().out


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "planner.cli.main", "suggest", *SCENARIO]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(timeout=60)
    assert code == 5
    assert err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("more", [[], ["--json"], ["--pin", "x", "--json"]], ids=" ".join)
def test_an_answer_that_can_not_be_written_is_a_failure(more: list[str]) -> None:
    command = [sys.executable, "-m", "planner.cli.main", "suggest", *SCENARIO, "--no-store", *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_a_closed_stdout_is_a_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["suggest", *SCENARIO, "--json"]) == 5
    assert "stdout is closed" in capsys.readouterr().err


def test_a_missing_option_is_named_as_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--model", "llama-3.1-8b", "--json")
    assert code == 2
    assert err == ""
    problem = json.loads(out)
    assert (problem["type"], problem["field"], problem["value"]) == ("missing", "cluster", None)


def test_start_up_stays_light() -> None:
    """Asking for help must not pay for the solver or the web framework."""
    script = (
        "import sys; from planner.cli.main import run; run(['--help']);"
        "print(sorted({'ortools', 'pandas', 'scipy', 'fastapi', 'optuna', 'sqlalchemy'} & set(sys.modules)))"
    )
    environment = os.environ | {"TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_explain_walks_the_steps_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *SCENARIO, "--top", "2", "--explain")
    assert (code, err) == (0, "")
    table, told = out.split("How one would choose by hand", 1)
    assert "Proven best of the space searched" in table
    starts = [line.split(" ", 1)[0] for line in told.splitlines() if line[:1].isdigit()]
    assert starts == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "The search agrees" in told or "The search disagrees" in told
    assert max(map(len, told.splitlines())) <= 120


def test_explain_says_which_step_fails_where_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model", "llama-3.1-70b", "--cluster", "rtx4090-1", "--devices", "1"]
    code, out, _ = call(capsys, *small, "--global-batch-size", "8", "--seq-len", "4096", "--explain")
    assert code == 3
    assert "on one device" in out
    assert out.rstrip().endswith("These steps lead to no plan that fits.")


EIGHT_B = ["--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--devices", "32", "--global-batch-size", "16"]


@pytest.mark.parametrize(
    ("how", "heading", "compared"),
    [
        (
            ["--objective", "fewest_devices"],
            "which go for the shortest step; the search minimises the devices that are used):",
            r"its best plan uses 8 devices, not 16, and takes \S+ s, not \S+ s\.",
        ),
        (
            ["--objective", "cost", "--price-per-device-hour", "2", "--min-used", "0.25"],
            "which go for the shortest step; the search minimises what a step costs):",
            r"its best plan costs 0\.\d+ a step, not 0\.\d+, and takes \S+ s, not \S+ s\.",
        ),
    ],
)
def test_explain_compares_by_the_objective(
    capsys: pytest.CaptureFixture[str], how: list[str], heading: str, compared: str
) -> None:
    code, out, _ = call(capsys, *EIGHT_B, "--seq-len", "8192", "--top", "1", "--explain", *how)
    assert code == 0
    told = " ".join(out[out.index("How one would") :].split())
    assert heading in told
    assert re.search(compared, told)
    assert max(map(len, out[out.index("How one would") :].splitlines())) <= 120


def test_explain_is_a_key_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--top", "1", "--explain")["explanation"]
    assert set(found) == {"objective", "steps", "procedure_plan", "disagreements", "difference", "runners_up"}
    assert "explanation" not in answer(capsys, "--top", "1")


def test_tables_have_a_word_for_every_exchange_of_context_parallelism() -> None:
    assert set(_CP_SHORT) == set(CP_COMM_TYPES)
    assert set(EXCHANGES) == set(SHORT_EXCHANGES) == set(CP_COMM_TYPES)
