"""``/v1/plans/{id}/launch``: stored plans in the words of frameworks and schedulers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from planner.cli.main import run
from planner.client import BadRequest, PlannerClient
from tests.api.asking import UNKNOWN_ID, problem
from tests.api.conftest import Live

Json = dict[str, Any]


def test_a_plan_in_the_words_of_a_framework(client: httpx.Client, answer: Json) -> None:
    best = answer["plans"][0]
    found = client.get(f"/v1/plans/{best['id']}/launch", params={"target": "megatron-lm"})
    assert found.status_code == 200, found.text
    told = found.json()
    assert (told["target"], told["version"]) == ("megatron-lm", best["plan"]["framework_version"])
    script = told["files"][0]
    assert script["executable"]
    assert f"--tensor-model-parallel-size {best['plan']['tp']}" in script["text"]
    again = client.get(
        f"/v1/plans/{best['id']}/launch",
        params={"target": "megatron-lm"},
        headers={"If-None-Match": found.headers["ETag"]},
    )
    assert again.status_code == 304


def test_a_job_of_a_scheduler_names_the_plan(client: httpx.Client, answer: Json) -> None:
    id = answer["plans"][0]["id"]
    told = client.get(f"/v1/plans/{id}/launch", params={"target": "sbatch"}).json()
    assert id in told["files"][0]["text"]


def test_what_can_not_be_launched(client: httpx.Client, answer: Json) -> None:
    path = f"/v1/plans/{answer['plans'][0]['id']}/launch"
    problem(client.get(f"/v1/plans/{UNKNOWN_ID}/launch", params={"target": "sbatch"}), 404, "not-found")
    problem(client.get(path), 422, "invalid-input")
    problem(client.get(path, params={"target": "fortran"}), 422, "unknown-name")
    problem(client.get(path, params={"target": "deepspeed"}), 422, "invalid-input")
    problem(client.get(path, params={"target": "megatron-lm", "version": "9.9"}), 422, "unknown-name")
    told = problem(client.get(path, params={"target": "megatron-lm", "version": "0.9"}), 422, "inexpressible")
    assert {"field", "value", "why"} == set(told["refusals"][0])


def test_the_client_and_the_command_line_fetch_it(
    live: Live, answer: Json, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    id, secret = answer["plans"][0]["id"], live.key("read")[1]
    with PlannerClient(live.url, secret) as planner:
        found = planner.launch(id, "sbatch")
        with pytest.raises(BadRequest) as refused:
            planner.launch(id, "megatron-lm", "0.9")
    assert refused.value.refusals[0]["why"]
    monkeypatch.setenv("PLANNER_API_KEY", secret)
    code = run(["export", "--id", id, "--target", "sbatch", "--server", live.url])
    assert (code, capsys.readouterr().out) == (0, found.files[0].text)
    assert run(["export", "--id", UNKNOWN_ID, "--target", "sbatch", "--server", live.url]) == 2
    assert run(["export", "--id", id, "--target", "sbatch", "--server", live.url, "--partition", "x"]) == 2
