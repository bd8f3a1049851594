"""``planner suggest --server``: what a server answers is told exactly as what is searched here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import run
from tests.e2e.servers import Server, environment_of, lasting, serving
from tests.planner.scripted import DROPPED, Reply, scripted

SCENARIO = [
    *("--model", "llama-3-8b", "--cluster", "dgx-h100", "--devices", "16", "--global-batch-size", "64"),
    *("--seq-len", "4096", "--top", "2"),
]
MOMENTS = ("created_at", "started_at", "finished_at")
CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 22,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}

Told = tuple[int, str, str]
Ask = Callable[..., Told]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(f"sqlite:///{folder / 'planner.db'}", folder) as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def suggest(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Ask:
    """Run the command in this process, with a store of its own: (exit code, stdout, stderr)."""
    monkeypatch.setenv("PLANNER_DATABASE_URL", sqlite_url)

    def ask(*arguments: str) -> Told:
        code = run(["suggest", *SCENARIO, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return ask


def comparable(told: Told) -> tuple[int, Any, str]:
    """Without what two runs of the same search differ in: ids of the search, moments, and how long it took."""
    code, out, err = told
    err = "".join(line for line in err.splitlines(keepends=True) if "answered from the store" not in line)
    if not out.startswith("{"):
        return code, re.sub(r"\d+\.\d\d s\.$", "", out, flags=re.MULTILINE), err
    answer = json.loads(out)
    if "search" in answer:
        answer = {name: value for name, value in answer.items() if name not in ("id", *MOMENTS)}
        del answer["search"]["elapsed_s"]
    return code, answer, err


def test_a_sweep_over_a_server_is_the_sweep_of_here(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", sqlite_url)
    flags = ["sweep", *SCENARIO[:-2], "--devices", "1,4..16", "--pin", "tp=4", "--json"]
    found: list[dict[str, Any]] = []
    for where in (["--server", url], ["--no-store"]):
        assert run([*flags, *where]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert [point["devices"] for point in answer["points"]] == [1, 4, 8, 16]
        assert answer["points"][0]["plan"] is None
        assert answer["points"][0]["reason"]
        # A server names the smallest conflict; a sweep here has no time for that and names the first rule.
        own = {"search_id": None, "told": None, "reason": None}
        found.append(answer | {"points": [point | own for point in answer["points"]]})
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--json"],
        ["--pin", "tp=2,4", "--pin", "pp=1..2", "--forbid", "recompute=full", "--json"],
        ["--objective", "cost", "--price-per-device-hour", "2.5", "--min-free-gib", "8", "--json"],
        ["--framework", "torchtitan", "--precision", "fp8", "--optimizer", "muon", "--min-used", "0.5", "--json"],
        ["--pin", "tp=3"],
        ["--pin", "tp=3", "--json"],
        ["--seq-len", "262144", "--global-batch-size", "16", "--json"],
        [
            *("--devices", "8..16", "--max-step-time", "60", "--shortlist", "0.5", "--price-per-device-hour", "2"),
            *("--pin", "tp=2,4", "--pin", "cp=1", "--pin", "pp=1,2", "--json"),
        ],
        ["--cluster", "DGX H100", "--json"],
        ["--explain"],
        ["--explain", "--json"],
        ["--max-seconds", "0.000001", "--global-batch-size", "96", "--json"],
    ],
    ids=" ".join,
)
def test_a_server_answers_as_this_process_does(suggest: Ask, url: str, arguments: list[str]) -> None:
    here = suggest(*arguments)
    there = suggest(*arguments, "--server", url)
    again = suggest(*arguments)
    if "--max-seconds" in arguments:
        # What a deadline leaves is not the same twice, its form is.
        assert here[0] == there[0] == 4
        assert list(json.loads(here[1])) == list(json.loads(there[1]))
    else:
        assert comparable(there) == comparable(here) == comparable(again)
    if "--json" in arguments:
        assert list(json.loads(there[1])) == list(json.loads(here[1])), "the same fields in the same order"
        assert json.loads(there[1])["state"] == "done"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "lama-3-8b"],
        ["--cluster", "dgx-h1000"],
        ["--devices", "0"],
        ["--devices", "99999999999"],
        ["--pin", "tq=8"],
        ["--forbid", "recompute=everything"],
        ["--min-used", "nan"],
        ["--objective", "cost"],
        ["--objective", "step_tme"],
        ["--framework-version", "7.1"],
        ["--top", "0"],
        ["--model", "nowhere/config.json"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("as_json", [False, True], ids=["line", "problem"])
def test_bad_input_is_told_as_here(suggest: Ask, url: str, arguments: list[str], as_json: bool) -> None:
    more = [*arguments, *(["--json"] if as_json else [])]
    here = suggest(*more)
    assert here[0] == 2
    assert suggest(*more, "--server", url) == here


def test_what_only_the_server_minds_is_told_in_its_words(suggest: Ask, url: str) -> None:
    code, out, err = suggest("--max-seconds", "100000", "--server", url)
    assert (code, out) == (2, "")
    assert re.match(r"planner: max.seconds: 100000.* allowed by this server\n$", err)
    code, out, _ = suggest("--max-seconds", "100000", "--server", url, "--json")
    assert code == 2
    assert json.loads(out)["title"] == "Bad input"


def test_files_are_read_here(suggest: Ask, url: str, tmp_path: Path) -> None:
    model = tmp_path / "our-model" / "config.json"
    model.parent.mkdir()
    model.write_text(json.dumps(CONFIG | {"quantization_config": {"quant_method": "fp8"}}), encoding="utf-8")
    cluster = tmp_path / "lab.yaml"
    cluster.write_text("extends: dgx-a100-80gb\nname: lab\nprice_per_device_hour: 1.5\n", encoding="utf-8")
    arguments = ["--model", str(model), "--cluster", str(cluster), "--json"]
    here, there = suggest(*arguments), suggest(*arguments, "--server", url)
    assert comparable(there) == comparable(here)
    answer = json.loads(there[1])
    assert (answer["scenario"]["model"], answer["scenario"]["cluster"]) == ("our-model", "lab")
    assert "quantised (fp8)" in there[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [("extends: dgx-h1000\n", "dgx-h1000"), ("extends: dgx-h100\naccelerator: h1000\n", "h1000"), ("a: [", "lab.yaml")],
)
def test_a_file_that_is_wrong_is_said_here(suggest: Ask, tmp_path: Path, text: str, said: str) -> None:
    cluster = tmp_path / "lab.yaml"
    cluster.write_text(text, encoding="utf-8")
    with scripted(DROPPED) as nobody:
        told = suggest("--cluster", str(cluster), "--server", nobody.url)
        assert nobody.seen == []
    assert told == suggest("--cluster", str(cluster))
    assert told[0] == 2
    assert said in told[2]


def test_names_of_the_users_own_catalog_are_sent_as_what_they_mean(
    suggest: Ask, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("models", "clusters"):
        (tmp_path / "catalog" / folder).mkdir(parents=True)
    (tmp_path / "catalog" / "models" / "ours.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    # A name that the server has as well, and understands otherwise.
    own = "extends: dgx-h100\nname: dgx-h100\nmax_devices: 24\n"
    (tmp_path / "catalog" / "clusters" / "dgx-h100.yaml").write_text(own, encoding="utf-8")
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path / "catalog"))
    here, there = (suggest("--model", "ours", "--json", *more) for more in ((), ("--server", url)))
    assert comparable(there) == comparable(here)
    code, _, err = suggest("--model", "ours", "--devices", "32", "--server", url)
    assert code == 2
    assert "24" in err


def test_names_that_only_the_server_knows_are_for_it_to_judge(suggest: Ask) -> None:
    with scripted(Reply(status=500)) as elsewhere:
        assert suggest("--model", "their-model", "--cluster", "their-cluster", "--server", elsewhere.url)[0] == 5
        body = json.loads(elsewhere.seen[0].body)
    assert (body["model"], body["cluster"]) == ("their-model", "their-cluster")


def test_a_server_that_is_not_there_is_a_failure(suggest: Ask) -> None:
    with scripted(DROPPED) as server:
        url = server.url
    code, out, err = suggest("--server", url)
    assert (code, out) == (5, "")
    assert err.startswith(f"planner: {url} can't be reached: ")
    assert err.count("\n") == 1
    code, out, err = suggest("--server", url, "--json")
    assert (code, err) == (5, "")
    assert json.loads(out)["type"] == "failed"


def test_a_server_and_no_store_contradict_each_other(suggest: Ask) -> None:
    code, _, err = suggest("--server", "http://127.0.0.1:1", "--no-store")
    assert code == 2
    assert "no-store" in err


def test_the_server_may_be_named_by_a_variable(suggest: Ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_SERVER", url)
    asked = json.loads(suggest("--json")[1])
    monkeypatch.delenv("PLANNER_SERVER")
    assert json.loads(suggest("--json", "--server", url)[1])["id"] == asked["id"]


def test_the_key_is_read_from_the_environment(suggest: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"type": "unauthorized", "title": "t", "status": 401, "detail": "send an API key"}
    monkeypatch.setenv("PLANNER_API_KEY", "pk_secret")
    with scripted(Reply(status=401, body=refused)) as server:
        code, out, err = suggest("--server", server.url)
        assert server.seen[0].headers["authorization"] == "Bearer pk_secret"
    assert (code, out) == (5, "")
    assert "PLANNER_API_KEY" in err
    assert "pk_secret" not in err


def test_a_key_in_the_open_is_a_warning(suggest: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_API_KEY", "pk_secret")
    # The name is reserved: it leads nowhere (RFC 2606).
    code, _, err = suggest("--server", "http://planner.invalid")
    assert code == 5
    first, second = err.splitlines()
    assert first == ("planner: warning: the API key is sent unencrypted to http://planner.invalid; use https")
    assert "can't be reached" in second


@pytest.mark.slow
def test_ctrl_c_leaves_the_search_to_the_server(server: Server, url: str) -> None:
    question = lasting(14.0)
    flags = [part for name, value in question.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "planner.cli.main", "suggest", *flags, "--server", url]
    before = {search["id"] for search in server.client.get("/v1/searches").json()["items"]}
    with subprocess.Popen(
        command, env=environment_of(os.devnull), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        searches: list[dict[str, Any]] = []
        end = time.monotonic() + 30.0
        while not searches and time.monotonic() < end:
            items = server.client.get("/v1/searches").json()["items"]
            searches = [search for search in items if search["id"] not in before]
            time.sleep(0.1)
        # A busy machine takes a while to hand the server's answer to the command.
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (5, "")
    assert searches[0]["id"] in err
    assert "goes on" in err
    assert server.finished(searches[0]["id"])["state"] == "done"
