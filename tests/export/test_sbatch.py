"""The batch script, submitted to a real Slurm and run there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from planner.export.errors import Inexpressible
from planner.export.job import Job, SchedulerOptions
from planner.export.launch import Launcher
from planner.export.schedulers.sbatch import TARGET, write
from planner.export.targets import load_target
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
from tests.slurm.server import Slurm, slurm

__all__ = ["launcher", "slurm"]


def settings(text: str) -> dict[str, str]:
    """The options of sbatch in a script."""
    found = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (line.partition("=") for line in found)}


def of_a_thousand_nodes(**more: object) -> Job:
    """A plan for 16,384 devices."""
    scenario = scenario_of("llama-3.1-405b", devices=16384, global_batch_size=2048)
    return job_of(scenario, axes={"tp": 8, "pp": 16, "dp": 128}, **more)


# -- what it says ------------------------------------------------------------------------------------------------------


def test_what_the_plan_asks_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    options = SchedulerOptions(partition="absent", account="lab", time_limit_s=131400)
    text = write(of_a_thousand_nodes(name="405B, $(x)", scheduler=options), None).files[0].text
    assert settings(text) == {
        "job-name": "405B-x",
        "partition": "absent",
        "account": "lab",
        "nodes": "2048",
        "ntasks-per-node": "1",
        "gpus-per-node": "8",
        "time": "1-12:30:00",
        "comment": "'planner plan 0123abcd'",
        "output": "%x-%j.out",
        "open-mode": "append",
        "signal": "B:USR1@300",
        "requeue": "",
        "exclusive": "",
    }


def test_what_is_not_given_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(small_scenario(), plan_id=None), None)
    found = settings(launch.files[0].text)
    assert not found.keys() & {"partition", "account", "time", "comment"}
    assert "PLANNER_PLAN_ID" not in launch.files[0].text
    assert "The plan says nothing of the data." in launch.notes
    assert "No time limit is given: the partition's holds." in launch.notes


def test_a_job_smaller_than_a_node_leaves_the_rest_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(scenario_of(devices=4, global_batch_size=32)), None)
    assert settings(launch.files[0].text)["gpus-per-node"] == "4"
    assert "exclusive" not in settings(launch.files[0].text)
    assert any("leaves the others" in note for note in launch.notes)


def test_devices_that_slurm_has_no_usual_name_for_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(scenario_of(cluster="hls-gaudi2", devices=16, global_batch_size=32)), None)
    assert "gpus-per-node" not in settings(launch.files[0].text)
    assert "exclusive" in settings(launch.files[0].text)
    assert any("without a count of their devices" in note for note in launch.notes)


def test_domains_larger_than_a_node_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(scenario_of(cluster="gb200-nvl72", devices=144, global_batch_size=144)), None)
    assert any("18 neighbouring nodes" in note and "--segment=18" in note for note in launch.notes)


@pytest.mark.parametrize(("devices", "told"), [(1, True), (4, False)])
def test_processors_of_a_shared_node_are_left_to_the_site(
    devices: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of whole nodes has all of their processors; another one gets one for each task."""
    stand_in(monkeypatch, program())
    notes = write(job_of(small_scenario(devices=devices)), None).notes
    assert any("--cpus-per-task" in note for note in notes) == told


def test_an_image_is_pyxis(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    launch = write(job_of(small_scenario(), scheduler=SchedulerOptions(image="nvcr.io/nvidia/nemo:25.11")), None)
    assert "--container-image=nvcr.io/nvidia/nemo:25.11" in launch.files[0].text
    assert any("Pyxis" in note for note in launch.notes)


@pytest.mark.parametrize(
    "options", [{"queue": "user"}, {"topology": "a/b"}, {"domain_topology": "a/b"}, {"restarts": 5}, {"restarts": 3}]
)
def test_what_slurm_has_no_word_for_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidInput, match=f"^{name.replace('_', '-')}: .* nothing that Slurm takes"):
        launch_of(job_of(small_scenario(), scheduler=SchedulerOptions(**options)), "sbatch")


def test_a_framework_that_nothing_starts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    job = job_of(small_scenario())
    other = Job(scenario=job.scenario, plan=job.plan.model_copy(update={"framework": "hai-llm"}))
    with pytest.raises(InvalidInput, match="nothing here starts those of hai-llm"):
        write(other, None)


def test_nodes_that_are_not_all_full_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    with pytest.raises(Inexpressible, match="devices_used 3: each node starts a process for each of its 2 devices"):
        write(job_of(small_scenario(devices=3), axes={"dp": 1, "pp": 3}), None)


def test_the_target_is_found_by_name() -> None:
    assert load_target("sbatch") is TARGET
    assert load_target("slurm") is TARGET


# -- held against a real Slurm -----------------------------------------------------------------------------------------


def test_slurm_would_run_it_on_two_thousand_nodes(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, program())
    options = SchedulerOptions(partition="absent", time_limit_s=86400)
    script = place(write(of_a_thousand_nodes(scheduler=options), None), tmp_path)
    done = slurm.run("sbatch", "--test-only", script)
    assert done.returncode == 0, done.stderr
    assert "using 16384 processors on nodes absent[1-2048]" in done.stderr


def test_slurm_refuses_a_partition_that_it_lacks(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would look like if Slurm did not read the script."""
    stand_in(monkeypatch, program())
    script = place(write(job_of(small_scenario(), scheduler=SchedulerOptions(partition="nowhere")), None), tmp_path)
    done = slurm.run("sbatch", "--test-only", script)
    assert done.returncode != 0
    assert "invalid partition specified: nowhere" in done.stderr


def test_every_process_is_told_who_it_is_and_what_to_do(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher
) -> None:
    stand_in(monkeypatch, program(launcher))
    folder = tmp_path / HOSTILE[0]
    folder.mkdir()
    script = place(write(job_of(small_scenario(), name=HOSTILE[1]), None), folder)
    more = [word for word in HOSTILE if "$$" not in word]  # which torchrun takes for a dollar
    job_id = slurm.submit(script, "--more", *more, environment={"PATH": path_with_torchrun()})
    found = slurm.wait_for(job_id, "COMPLETED", "FAILED")
    output = (folder / f"it-s-quoted-{job_id}.out").read_text(encoding="utf-8")
    assert found["JobState"] == "COMPLETED", output
    assert found["JobName"] == "it-s-quoted"
    assert found["Comment"] == "planner plan 0123abcd"
    assert found["Requeue"] == "1"
    host, port = found["BatchHost"], str(15000 + int(job_id) % 15000)
    ranks = told(folder)
    assert list(ranks) == ([0, 1] if launcher == "torchrun" else [0])
    for rank, one in ranks.items():
        assert one["arguments"] == [*ARGUMENTS, "--more", *more]
        assert one["file"] == FILE.text
        assert one["NAME"] == HOSTILE[3]
        assert one["PLANNER_PLAN_ID"] == "0123abcd"
        if launcher == "torchrun":
            assert (one["RANK"], one["WORLD_SIZE"], one["LOCAL_RANK"]) == (str(rank), "2", str(rank))
            assert (one["GROUP_RANK"], one["MASTER_ADDR"], one["MASTER_PORT"]) == ("0", host, port)
            assert one["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "300"
        else:
            assert (one["NNODES"], one["NODE_RANK"]) == ("1", "0")
            assert (one["JAX_COORDINATOR_IP"], one["JAX_COORDINATOR_PORT"]) == (host, port)


def test_before_the_end_the_training_saves_and_the_job_is_queued_again(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, program())
    script = place(write(job_of(small_scenario()), None), tmp_path)
    job_id = slurm.submit(script, "--until-told", environment={"PATH": path_with_torchrun()})
    slurm.wait_for(job_id, "RUNNING")
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("waits-*"))) < 2:
        assert time.monotonic() < deadline, (tmp_path / f"train-{job_id}.out").read_text(encoding="utf-8")
        time.sleep(0.1)
    # What --signal=B:USR1@300 does 300 s before the end.
    done = slurm.run("scancel", "--batch", "--signal=USR1", job_id)
    assert done.returncode == 0, done.stderr
    queued = slurm.wait_for(job_id, "PENDING")
    assert queued["Restarts"] == "1"
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-0", "checkpoint-1"]
    # Slurm waits two minutes before it starts a job again. In the second in which the first run ended it would take the
    # second for it: "Job credential revoked".
    time.sleep(2)
    assert slurm.run("scontrol", "update", f"JobId={job_id}", "StartTime=now").returncode == 0
    found = slurm.wait_for(job_id, "COMPLETED", "FAILED")
    output = (tmp_path / f"train-{job_id}.out").read_text(encoding="utf-8")
    assert found["JobState"] == "COMPLETED", output + slurm.logs()
    for rank in (0, 1):
        said = [line for line in output.splitlines() if line.startswith(f"rank {rank} ")]
        assert said == [f"rank {rank} begins", f"rank {rank} saved", f"rank {rank} resumes"]


def test_a_process_that_fails_fails_the_job(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program("python"))
    script = place(write(job_of(small_scenario()), None), tmp_path)
    (script.parent / FILE.name).unlink()
    job_id = slurm.submit(script, environment={"PATH": path_with_torchrun()})
    assert slurm.wait_for(job_id, "COMPLETED", "FAILED")["JobState"] == "FAILED"
