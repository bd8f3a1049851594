"""A program that stands in for a framework's: it says who it is and what it was told, and a job that starts it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from planner.export import targets
from planner.export.job import Job
from planner.export.launch import Launch, Launcher, LaunchFile, Program
from planner.export.target import Target
from tests.export.hostile import HOSTILE
from tests.plans import finished
from tests.scenarios import plan_row, scenario_of

SCRIPT = "train it's $(touch owned).py"
"""No shell may look at the name of the program."""

# The first run of rank 0 waits for SIGTERM when it is told to, as a training does that writes a checkpoint on it.
TEXT = """
import json, os, pathlib, signal, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "PLANNER_PLAN_ID", "NAME",
         "NNODES", "NODE_RANK", "JAX_COORDINATOR_IP", "JAX_COORDINATOR_PORT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
told = {name: os.environ.get(name) for name in names}
rank = os.environ.get("RANK", os.environ.get("NODE_RANK"))
more = {"arguments": sys.argv[1:], "file": pathlib.Path("plan.yaml").read_text(encoding="utf-8")}
pathlib.Path(f"rank-{rank}.json").write_text(json.dumps(told | more), encoding="utf-8")
checkpoint = pathlib.Path(f"checkpoint-{rank}")
def say(what):
    os.write(1, f"rank {rank} {what}\\n".encode())  # in one piece, as all processes have one output
say("resumes" if checkpoint.exists() else "begins")
if "--until-told" in sys.argv and not checkpoint.exists():
    def save(*_):
        checkpoint.touch()
        say("saved")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    pathlib.Path(f"waits-{rank}").touch()
    time.sleep(100)
"""
FILE = LaunchFile(name="plan.yaml", text="name: $(touch owned) \u00e9\n")
ARGUMENTS = ("--tp", "2", "--hostile", *HOSTILE)


def program(launcher: Launcher = "torchrun") -> Program:
    """The program, with words of all kinds."""
    return Program(
        launcher=launcher,
        script=SCRIPT,
        arguments=ARGUMENTS,
        environment={"NAME": HOSTILE[3], "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        files=(FILE,),
        notes=("The plan says nothing of the data.",),
    )


@pytest.fixture(params=["torchrun", "python"])
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Each way to start a program."""
    found: Launcher = request.param
    return found


def stand_in(monkeypatch: pytest.MonkeyPatch, what: Program) -> None:
    """Have plans of Megatron-Core started by this program."""

    def write(job: Job, version: str | None) -> Launch:
        raise AssertionError("schedulers ask for the program")

    target = Target(
        name="stand-in",
        title="Stand-in",
        kind="framework",
        frameworks=("megatron-core",),
        write=write,
        program=lambda job, version: what,
        verified="",
    )
    monkeypatch.setattr(targets, "TARGETS", (target, *targets.TARGETS))


def small_scenario(devices: int = 2, cluster: str = "dgx-h100", **changes: Any) -> Scenario:
    """A scenario whose nodes have two devices."""
    scenario = scenario_of(devices=devices, global_batch_size=32, cluster=cluster)
    return scenario.model_copy(
        update={"cluster": scenario.cluster.model_copy(update={"devices_per_node": 2, **changes})}
    )


def job_of(scenario: Scenario, *, axes: Mapping[str, int] | None = None, **more: Any) -> Job:
    """The job of a legal plan of all devices."""
    row = plan_row(scenario.workload.global_batch_size, **({"dp": scenario.devices} | dict(axes or {})))
    plan = Plan.model_validate(finished(scenario, row).model_dump())
    return Job(scenario=scenario, plan=plan, **({"plan_id": "0123abcd"} | more))


def place(launch: Launch, folder: Path) -> Path:
    """Write the files of a launch, and the program, into a folder; the first file's path."""
    for file in launch.files:
        (folder / file.name).write_text(file.text, encoding="utf-8")
    (folder / SCRIPT).write_text(TEXT, encoding="utf-8")
    return folder / launch.files[0].name


def told(folder: Path) -> dict[int, dict[str, Any]]:
    """What each process was told, by rank; and that no shell executed a name."""
    assert not (folder / "owned").exists()
    files = sorted(folder.glob("rank-*.json"))
    return {int(file.stem.removeprefix("rank-")): json.loads(file.read_text(encoding="utf-8")) for file in files}


# Torchrun takes seconds to start. This takes the same flags and does the same to words; test_sbatch.py and test_ray.py
# run the real one.
_TORCHRUN = """
import argparse, os, string, subprocess, sys
parser = argparse.ArgumentParser()
for flag in ("--nnodes", "--nproc-per-node", "--node-rank"):
    parser.add_argument(flag, type=int, required=True)
parser.add_argument("--rdzv-backend", choices=["static"], required=True)
parser.add_argument("--rdzv-endpoint", required=True)
parser.add_argument("words", nargs=argparse.REMAINDER)
given = parser.parse_args()
address, port = given.rdzv_endpoint.rsplit(":", 1)
running = []
for local in range(given.nproc_per_node):
    rank = given.node_rank * given.nproc_per_node + local
    told = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": given.nnodes * given.nproc_per_node,
            "GROUP_RANK": given.node_rank, "MASTER_ADDR": address, "MASTER_PORT": port}
    words = [string.Template(word).safe_substitute(local_rank=local) for word in given.words]
    environment = os.environ | {name: str(value) for name, value in told.items()}
    running.append(subprocess.Popen([sys.executable, "-u", *words], env=environment))
sys.exit(max(process.wait() for process in running))
"""


def path_with_quick_torchrun(folder: Path) -> str:
    """A PATH with a stand-in for torchrun, which is written into the folder, and this Python."""
    script = folder / "torchrun"
    script.write_text(f"#!{sys.executable}\n{_TORCHRUN}", encoding="utf-8")
    script.chmod(0o755)
    return os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))


def path_with_torchrun() -> str:
    """A PATH on which torchrun and this Python are; a skip without torch, a failure in CI."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    if shutil.which("torchrun", path=path) is None:
        if os.environ.get("CI"):
            pytest.fail("torch is not installed: no torchrun on PATH")
        pytest.skip("torch is not installed")
    return path
