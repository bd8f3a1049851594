"""The task for SkyPilot: accepted by SkyPilot's own schemas, its script run as on a machine of the task."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from planner.export.errors import Inexpressible
from planner.export.job import Job, SchedulerOptions
from planner.export.launch import Launcher
from planner.export.schedulers.devices import device_names
from planner.export.schedulers.skypilot import write
from tests.export import releases
from tests.export.hostile import HOSTILE
from tests.export.standing_in import (
    ARGUMENTS,
    FILE,
    job_of,
    launcher,
    path_with_quick_torchrun,
    place,
    program,
    small_scenario,
    stand_in,
    told,
)
from tests.scenarios import scenario_of

__all__ = ["launcher"]

RELEASE = "0.14.1"


def task_of(job: Job) -> dict[str, Any]:
    task: dict[str, Any] = yaml.safe_load(write(job, None).files[0].text)
    return task


def test_machines_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    options = SchedulerOptions(image="nvcr.io/nvidia/nemo:25.11", restarts=7)
    task = task_of(job_of(scenario_of(devices=64), name="8B, $(x)", scheduler=options))
    assert task["name"] == "train-8B-x"
    assert task["num_nodes"] == 8
    assert task["resources"] == {
        "accelerators": {"H100": 8},
        "image_id": "docker:nvcr.io/nvidia/nemo:25.11",
        "network_tier": "best",
        "job_recovery": {"max_restarts_on_errors": 7},
    }
    assert task["envs"]["PLANNER_PLAN_ID"] == "0123abcd"


def test_what_is_not_given_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(small_scenario(), plan_id=None), None)
    task = yaml.safe_load(launch.files[0].text)
    assert not task["resources"].keys() & {"image_id", "network_tier"}
    assert "PLANNER_PLAN_ID" not in task["envs"]
    assert any("No image" in note for note in launch.notes)


def test_accelerators_that_no_cloud_of_it_rents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    with pytest.raises(Inexpressible, match="h800-sxm5-80gb"):
        write(job_of(scenario_of(cluster="h800-8x400g")), None)


# -- held against SkyPilot itself --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=releases.known("skypilot", RELEASE))
def known(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Its schemas, and the accelerators that it knows."""
    (found,) = releases.ask("skypilot", request.param, [{}])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("options", [{}, {"image": "nvcr.io/nvidia/nemo:25.11", "restarts": 7}], ids=["least", "most"])
@pytest.mark.parametrize("name", ["train", *HOSTILE])
def test_skypilot_accepts_the_task(
    options: dict[str, Any], name: str, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, program())
    task = task_of(job_of(scenario_of(devices=64), name=name, scheduler=SchedulerOptions(**options)))
    jsonschema_rs.validate(known["task"], task)
    jsonschema_rs.validate(known["resources"], task["resources"])
    # sky/task.py, _VALID_NAME_REGEX; and that of clusters, sky/skylet/constants.py
    assert re.fullmatch(r"[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*", task["name"])
    assert re.fullmatch(r"[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?", task["name"])


@pytest.mark.parametrize("change", [{"num_nodes": "8"}, {"nodes": 8}, {"envs": {"a b": "x"}}])
def test_the_schema_would_notice_a_mistake(
    change: dict[str, Any], known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, program())
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(known["task"], task_of(job_of(small_scenario())) | change)


def test_skypilot_knows_every_accelerator_by_that_name(known: dict[str, Any]) -> None:
    assert set(device_names().skypilot.values()) <= set(known["accelerators"])


# -- run as on a machine of the task -----------------------------------------------------------------------------------


def test_the_script_starts_the_program(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program(launcher))
    job = job_of(small_scenario())
    place(write(job, None), tmp_path)
    task = task_of(job)
    given = {"SKYPILOT_NODE_IPS": "127.0.0.1", "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"}
    done = subprocess.run(
        ["bash", "-c", task["run"]],
        cwd=tmp_path,
        env=os.environ | task["envs"] | given | {"PATH": path_with_quick_torchrun(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = told(tmp_path)
    assert list(ranks) == ([0, 1] if launcher == "torchrun" else [0])
    for rank, one in ranks.items():
        if launcher == "torchrun":
            assert (one["RANK"], one["WORLD_SIZE"], one["GROUP_RANK"]) == (str(rank), "2", "0")
        assert one["arguments"] == list(ARGUMENTS)
        assert one["file"] == FILE.text
        assert one["NAME"] == HOSTILE[3]
