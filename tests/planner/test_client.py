"""The client against a real server: everything that the API does, typed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from planner.client import (
    Answer,
    BadRequest,
    NotAllowed,
    NotThere,
    PlanFilter,
    PlannerClient,
    PlanQuestion,
    RunReport,
    SearchQuestion,
    StudyQuestion,
)
from tests.e2e.servers import SMALL, environment_of, lasting, serving
from tests.processes import eventually

QUESTION = SearchQuestion(**SMALL, top=4)
NOTHING = "0" * 32


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlannerClient]:
    """A client of a server of its own."""
    folder = tmp_path_factory.mktemp("client")
    url = f"sqlite:///{folder / 'planner.db'}"
    with serving(url, folder) as server, PlannerClient(f"http://127.0.0.1:{server.port}") as opened:
        yield opened


@pytest.fixture(scope="module")
def answer(client: PlannerClient) -> Answer:
    return client.suggest(QUESTION)


def test_an_answer_has_ranked_plans(answer: Answer) -> None:
    assert answer.status == "optimal"
    assert [plan.rank for plan in answer.plans] == [1, 2, 3, 4]
    assert answer.best == answer.plans[0].prediction.step_time_s
    assert answer.is_over
    assert answer.scenario.model == SMALL["model"]
    assert answer.plans[0].plan.devices_used <= SMALL["devices"]


def test_a_study_is_opened_found_and_stopped(client: PlannerClient) -> None:
    opened = client.create_study(StudyQuestion(**SMALL, name="of the client", runner="slurm", trials=3))
    assert (opened.state, opened.runner, opened.most_trials, opened.is_over) == ("preparing", "slurm", 3, False)
    assert client.study(opened.id) == opened
    assert [listed.id for listed in client.studies(state="preparing")] == [opened.id]

    stopped = client.cancel_study(opened.id)

    assert (stopped.state, stopped.is_over, stopped.trials) == ("stopped", True, ())
    with pytest.raises(BadRequest, match="name"):
        client.create_study(StudyQuestion(**SMALL, name="of the client"))


def test_answers_can_not_be_changed(answer: Answer) -> None:
    with pytest.raises(ValueError, match="frozen"):
        answer.status = "feasible"  # type: ignore[misc]


def test_the_same_question_has_the_same_answer(client: PlannerClient, answer: Answer) -> None:
    assert client.suggest(QUESTION) == answer
    assert client.get_search(answer.id) == answer
    assert client.create_search(QUESTION) == answer
    assert answer.document() == client.wait(answer.id).document()


def test_nothing_fits_is_an_answer(client: PlannerClient) -> None:
    found = client.suggest(dataclasses.replace(QUESTION, pins=["tp=3"]))
    assert found.status == "infeasible"
    assert found.plans == ()
    assert found.infeasibility is not None
    assert any("tp 3" in part.reason for part in found.infeasibility.conflict)


def test_a_model_and_a_cluster_of_ones_own(client: PlannerClient) -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 22}
    config |= {"num_attention_heads": 16, "vocab_size": 32000, "name": "ours"}
    cluster = {"name": "lab", "extends": "dgx-h100", "max_devices": 16}
    found = client.suggest(
        SearchQuestion(model=config, cluster=cluster, devices=16, global_batch_size=64, seq_len=2048, top=1)
    )
    assert (found.scenario.model, found.scenario.cluster) == ("ours", "lab")


def test_a_search_is_asked_followed_and_found_in_the_list(client: PlannerClient) -> None:
    asked = client.create_search(dataclasses.replace(QUESTION, global_batch_size=512))
    events = list(client.events(asked.id))
    assert (events[0].kind, events[-1].kind) == ("queued", "done")
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    assert list(client.events(asked.id, after=events[-1].sequence)) == []
    assert [event.kind for event in client.events(asked.id, after=events[-2].sequence)] == ["done"]
    assert isinstance(client.get_search(asked.id), Answer)

    listed = [search.id for search in client.searches(page_size=1)]
    assert asked.id in listed
    assert len(listed) == len(set(listed)) >= 2
    assert all(search.status == "optimal" for search in client.searches(status="optimal"))
    assert list(client.searches(model="no such model")) == []


def test_a_search_is_cancelled(client: PlannerClient) -> None:
    asked = client.create_search(SearchQuestion(**lasting(30.0)))
    client.cancel(asked.id)
    assert client.wait(asked.id, 20.0).state == "cancelled"
    assert client.cancel(asked.id).state == "cancelled"


def test_plans_are_found_sorted_and_filtered(client: PlannerClient, answer: Answer) -> None:
    of_search = PlanFilter(search_id=answer.id)
    found = list(client.plans(of_search, sort="step_time_s", page_size=2))
    assert [plan.id for plan in found] == [plan.id for plan in answer.plans]
    slowest_first = list(client.plans(of_search, sort="-step_time_s"))
    assert slowest_first == found[::-1]
    tp = answer.plans[0].plan.tp
    picked = list(client.plans(dataclasses.replace(of_search, axes={"tp": tp, "schedule": "1f1b"})))
    assert {plan.id for plan in picked} == {
        plan.id for plan in answer.plans if plan.plan.tp == tp and plan.plan.schedule == "1f1b"
    }
    stored = client.plan(found[0].id)
    assert stored.plan == answer.plans[0].plan
    assert stored.prediction == answer.plans[0].prediction


def test_plans_are_compared(client: PlannerClient, answer: Answer) -> None:
    first, second = answer.plans[0], answer.plans[1]
    found = client.compare(second.id, first.id)
    assert found.fastest == first.id
    assert found.same_scenario
    assert [plan.id for plan in found.plans] == [second.id, first.id]
    assert found.axes


def test_plans_of_ones_own_are_priced_and_measured(client: PlannerClient, answer: Answer) -> None:
    known = {"model": SMALL["model"], "cluster": SMALL["cluster"]}
    # Of the plans that leave the device some room: nearer to its limit than a twentieth is at risk.
    best = next(
        plan for plan in answer.plans if plan.prediction.memory.peak_bytes < 0.9 * plan.prediction.memory.usable_bytes
    )
    wrong: dict[str, Any] = {"model": "no-such-model", "cluster": SMALL["cluster"]}
    results = client.predict([PlanQuestion(**known, plan=best.plan.document()), PlanQuestion(**wrong, plan={"tp": 1})])
    assert results[0].status == "fits"
    assert results[0].plan_id is not None
    assert results[0].prediction is not None
    assert results[0].prediction.step_time_s == pytest.approx(best.prediction.step_time_s)
    assert results[1].status is None
    assert results[1].problem is not None
    assert results[1].problem["type"] == "unknown-name"

    when = datetime(2026, 11, 29, 12, tzinfo=UTC)
    twice = 2 * best.prediction.step_time_s
    report = RunReport(plan_id=best.id, step_time_s=twice, job_id="42", environment={"torch": "2.9"}, measured_at=when)
    told = client.measure(report)
    assert told.measured_over_predicted == pytest.approx(2.0)
    assert told.measured_at == when
    assert client.measurement(told.id) == told
    assert [measured.id for measured in client.measurements(plan_id=best.id)] == [told.id]
    assert list(client.measurements(job_id="43")) == []


def test_batches_of_any_size_are_priced_in_order(client: PlannerClient) -> None:
    known = {"model": "no-such-model", "cluster": SMALL["cluster"], "plan": {"tp": 1}}
    found = client.predict([PlanQuestion(**known) for _ in range(150)])
    assert len(found) == 150
    assert client.predict([]) == ()


def test_the_catalog(client: PlannerClient) -> None:
    assert client.model("llama-3-8b").params == next(m.params for m in client.models() if m.name == "llama-3-8b")
    assert client.cluster("dgx-h100").accelerator in {cluster.accelerator for cluster in client.clusters()}
    current = client.calibrations()[0]
    assert current.current
    assert client.calibration(current.name).id == client.calibration(current.id).id == current.id


def test_a_server_that_is_well_says_so(client: PlannerClient) -> None:
    # It is not before its first process that searches has started.
    assert eventually(lambda: client.health().ready, 60)
    assert client.health().database == "sqlite"


def test_what_is_not_there(client: PlannerClient) -> None:
    for look in (client.get_search, client.plan, client.measurement, client.cancel):
        with pytest.raises(NotThere, match=NOTHING):
            look(NOTHING)
    for name in ("no/such/model", "../searches", "x"):
        with pytest.raises(NotThere):
            client.model(name)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"model": "lama"}, "model"), ({"devices": 0}, "devices"), ({"pins": ["tq=1"]}, "pins[0]"), ({"top": 0}, "top")],
)
def test_bad_input_names_its_field(client: PlannerClient, change: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        client.suggest(dataclasses.replace(QUESTION, **change))
    assert caught.value.field == field
    assert caught.value.request_id


def test_the_example_of_the_documentation_works(client: PlannerClient) -> None:
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    example = text.split("```python\n", 1)[1].split("```", 1)[0].replace("http://127.0.0.1:8000", client.url)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True, timeout=60)
    first, second, *plans = done.stdout.splitlines()
    assert first.endswith("s per step")
    assert second.endswith("of the predicted time")
    assert plans


def test_keys_are_asked_for_and_their_scopes_hold(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'planner.db'}"

    def key(scope: str) -> str:
        make = [sys.executable, "-m", "planner.cli.main", "keys", "create", "--name", scope, "--scope", scope]
        made = subprocess.run(make, env=environment_of(url), capture_output=True, text=True, check=True, timeout=60)
        return made.stdout.split()[-1]

    read, write = key("read"), key("write")
    with serving(url, tmp_path, "--require-keys") as server:
        address = f"http://127.0.0.1:{server.port}"
        for wrong in (None, "pk_wrong"):
            with PlannerClient(address, wrong) as stranger, pytest.raises(NotAllowed, match="API key"):
                stranger.models()
        with PlannerClient(address, read) as reader:
            assert reader.models()
            with pytest.raises(NotAllowed, match="no scope 'write'"):
                reader.suggest(QUESTION)
        with PlannerClient(address, write) as writer:
            assert writer.suggest(dataclasses.replace(QUESTION, top=1)).plans
