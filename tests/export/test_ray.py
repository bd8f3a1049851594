"""The script for Ray, run: on a real Ray where it is installed, else on what stands in for it (``ray_driver.py``)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from planner.export.errors import Inexpressible
from planner.export.job import Job, SchedulerOptions
from planner.export.launch import Launcher
from planner.export.schedulers.ray import write
from planner.launching import launch_of
from tests.export.hostile import HOSTILE
from tests.export.standing_in import (
    ARGUMENTS,
    FILE,
    job_of,
    launcher,
    path_with_torchrun,
    place,
    program,
    small_scenario,
    stand_in,
    told,
)
from tests.scenarios import scenario_of

__all__ = ["launcher"]

DRIVER = Path(__file__).resolve().parent / "ray_driver.py"


def run(job: Job, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a job's script on two nodes of two devices."""
    script = place(write(job, None), folder)
    return subprocess.run(
        [sys.executable, DRIVER, script.name, *arguments],
        cwd=folder,
        env=os.environ | {"PATH": path_with_torchrun()},
        capture_output=True,
        text=True,
        check=False,
    )


def constants(text: str) -> dict[str, object]:
    """What a script's names in capitals hold."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return {node.targets[0].id: ast.literal_eval(node.value) for node in found if isinstance(node.targets[0], ast.Name)}


def test_a_bundle_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program("python"))
    found = constants(write(job_of(scenario_of(devices=64), name=HOSTILE[2]), None).files[0].text)
    assert found["NODES"] == 8
    assert found["BUNDLE"] == {"GPU": 8, "CPU": 8}
    assert found["PROGRAM"] == [program().script, *ARGUMENTS]
    assert found["ENVIRONMENT"] == {**program().environment, "PLANNER_PLAN_ID": "0123abcd"}


def test_other_accelerators_are_resources_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    text = write(job_of(scenario_of(cluster="hls-gaudi2", devices=16, global_batch_size=32)), None).files[0].text
    assert constants(text)["BUNDLE"] == {"HPU": 8, "CPU": 8}
    assert 'resources={"HPU": BUNDLE["HPU"]}' in text
    with pytest.raises(Inexpressible, match="no name of AWS's trainium2"):
        write(job_of(scenario_of(cluster="trn2.48xlarge", devices=16, global_batch_size=32)), None)


@pytest.mark.parametrize("options", [{"image": "a:b"}, {"restarts": 3}])
def test_what_ray_has_no_word_for_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidInput, match=rf"{name}: .* nothing that Ray takes"):
        launch_of(job_of(small_scenario(), scheduler=SchedulerOptions(**options)), "ray")


def test_every_node_starts_its_part(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program(launcher))
    more = [word for word in HOSTILE if "$$" not in word]  # which torchrun takes for a dollar
    done = run(job_of(small_scenario(devices=4)), tmp_path, "--more", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = told(tmp_path)
    assert list(ranks) == ([0, 1, 2, 3] if launcher == "torchrun" else [0, 1])
    for rank, one in ranks.items():
        assert one["arguments"] == [*ARGUMENTS, "--more", *more]
        assert one["file"] == FILE.text
        assert (one["NAME"], one["PLANNER_PLAN_ID"]) == (HOSTILE[3], "0123abcd")
        if launcher == "torchrun":
            assert (one["WORLD_SIZE"], one["GROUP_RANK"], one["LOCAL_RANK"]) == ("4", str(rank // 2), str(rank % 2))
        else:
            assert (one["NNODES"], one["NODE_RANK"]) == ("2", str(rank))
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"], one["JAX_COORDINATOR_PORT"]) for one in ranks.values()}) == 1


def test_a_node_that_fails_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program("python"))
    job = job_of(small_scenario(devices=4))
    monkeypatch.setattr("tests.export.standing_in.TEXT", "import sys; sys.exit(7)")
    assert run(job, tmp_path).returncode == 7
