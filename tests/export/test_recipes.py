"""The recipes of docs/launch.md, word for word: with a real Slurm, a real server, stand-ins for other schedulers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from db.urls import VARIABLE
from planner.export.targets import TARGETS
from tests.e2e.servers import serving
from tests.slurm.server import Slurm, slurm

__all__ = ["slurm"]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/launch.md"
# The default one's target, or another's as long as that is not there.
FRAMEWORK = next(
    framework
    for framework in ("megatron-core", "maxtext")
    if any(target.kind == "framework" and framework in target.frameworks for target in TARGETS)
)


def block(heading: str, language: str = "sh", index: int = 0) -> str:
    """A block of code below a heading."""
    _, found, section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n### {heading}\n")
    assert found, f"docs/launch.md has no heading {heading}"
    section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(blocks[index])


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a block in a folder, with this planner and a database of the folder's own."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    planner = commands / "planner"
    planner.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m planner.cli.main "$@"\n', encoding="utf-8")
    planner.chmod(0o755)
    path = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    ours = {"PATH": path, "FRAMEWORK": FRAMEWORK, VARIABLE: f"sqlite:///{folder / 'planner.db'}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | ours | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def asked(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder in which the first block was run: with the nodes of Slurm that are not there. The job and the plan."""
    folder = tmp_path_factory.mktemp("asked")
    run(block("Slurm"), folder, SLURM_CONF=str(slurm.home / "slurm.conf"), SBATCH_PARTITION="absent")
    (line,) = (folder / "jobs.tsv").read_text(encoding="utf-8").splitlines()
    job_id, plan_id = line.split("\t")
    return folder, job_id, plan_id


def stand_in(folder: Path, *names: str) -> None:
    """Commands that write down what they were told, and where."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in names:
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\necho "$(pwd)" {name} "$@" >>"{folder}/told.txt"\n', encoding="utf-8")
        command.chmod(0o755)


@pytest.mark.slow
def test_slurm_gets_the_plan_that_was_asked_for(slurm: Slurm, asked: tuple[Path, str, str]) -> None:
    folder, job_id, plan_id = asked
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    best = answer["plans"][0]
    assert plan_id == best["id"]
    job = slurm.job(job_id)
    slurm.run("scancel", job_id)
    assert job["Comment"] == f"planner plan {plan_id}"
    assert job["NumNodes"].partition("-")[0] == str(best["plan"]["devices_used"] // 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "command", "file"),
    [
        ("Kueue and JobSet", "kubectl apply -f jobset-{plan}/jobset.yaml", "jobset-{plan}/jobset.yaml"),
        ("SkyPilot", "sky jobs launch --yes task.yaml", "sky-{plan}/task.yaml"),
        ("Ray", "ray job submit --working-dir . -- python launch_ray.py", "ray-{plan}/launch_ray.py"),
    ],
    ids=["jobset", "skypilot", "ray"],
)
def test_other_schedulers_get_the_plan(heading: str, command: str, file: str, asked: tuple[Path, str, str]) -> None:
    folder, _, plan = asked
    stand_in(folder, "kubectl", "sky", "ray")
    run(f"plan={plan}\n{block(heading)}", folder)
    written = folder / file.format(plan=plan)
    first, *_ = (folder / "told.txt").read_text(encoding="utf-8").splitlines()
    (folder / "told.txt").unlink()
    where, _, told = first.partition(" ")
    assert told == command.format(plan=plan)
    assert (Path(where) / told.split()[-1]).resolve() == written.resolve()
    text = written.read_text(encoding="utf-8")
    assert plan in text
    if written.suffix == ".yaml":
        assert list(yaml.safe_load_all(text))


@pytest.mark.slow
def test_the_nodes_that_are_left_get_a_plan_of_the_same_batch(tmp_path: Path) -> None:
    run(f"framework={FRAMEWORK}\n{block('When a node is lost')}", tmp_path)
    answer = json.loads((tmp_path / "answer-on-7.json").read_text(encoding="utf-8"))
    best = answer["plans"][0]["plan"]
    assert best["devices_used"] <= 7 * 8
    assert (best["global_batch_size"], best["seq_len"]) == (256, 8192)


@pytest.mark.slow
def test_a_service_asks_with_deadlines(tmp_path: Path) -> None:
    heading = "A service that runs for long"
    with serving(f"sqlite:///{tmp_path / 'served.db'}", tmp_path) as server:
        address = f"http://127.0.0.1:{server.port}"
        python = block(heading, "python").replace("http://127.0.0.1:8000", address)
        done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        plan_id, status, _ = done.stdout.split()
        assert status in ("optimal", "feasible")
        twice = run(f"{block(heading)}{block(heading)}", tmp_path, PLANNER=address)
        first, second = map(json.loads, halves(twice.stdout))
        assert first["plans"][0]["id"] == second["plans"][0]["id"] == plan_id
        report = f"plan={plan_id}\njob=4711\n{block('Slurm', index=1)}"
        measured = json.loads(run(report, tmp_path, PLANNER=address).stdout)
        assert (measured["plan_id"], measured["job_id"]) == (plan_id, "4711")


def halves(text: str) -> list[str]:
    """Two documents that were written one after the other."""
    _, end = json.JSONDecoder().raw_decode(text)
    return [text[:end], text[end:].strip()]
