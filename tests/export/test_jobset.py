"""The JobSet: read by generated models of its API, its container's command run as Kubernetes would."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.errors import InvalidInput
from planner.export.errors import Inexpressible
from planner.export.job import Job, SchedulerOptions
from planner.export.launch import Launcher
from planner.export.schedulers.jobset import kubernetes_name, write
from planner.launching import launch_of
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

OPTIONS = SchedulerOptions(
    image="nvcr.io/nvidia/nemo:25.11",
    queue="user-queue",
    topology="cloud.provider.com/topology-block",
    time_limit_s=86400,
    restarts=7,
)


def documents(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap and the JobSet."""
    config_map, jobset = yaml.safe_load_all(write(job, None).files[0].text)
    return config_map, jobset


def job_in(jobset: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of its only job."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    spec: dict[str, Any] = replicated["template"]["spec"]
    return spec


def container_in(jobset: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = job_in(jobset)["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def annotations(job: Job) -> dict[str, str]:
    """What Kueue is asked of the pods."""
    found: dict[str, str] = job_in(documents(job)[1])["template"].get("metadata", {}).get("annotations", {})
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """What Kubernetes makes of a text: $(NAME) where there is such a variable, and $$ is a dollar.

    kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables
    """

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def test_one_pod_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    config_map, jobset = documents(job_of(scenario_of(devices=64), name="Llama 3, $(x)", scheduler=OPTIONS))
    assert jobset["metadata"] == {
        "name": "llama-3-x",
        "labels": {"kueue.x-k8s.io/queue-name": "user-queue"},
        "annotations": {"planner/plan-id": "0123abcd"},
    }
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 7
    job = job_in(jobset)
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (8, 8, "Indexed")
    assert job["activeDeadlineSeconds"] == 86400
    assert job["template"]["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-block"
    }
    container = container_in(jobset)
    assert container["image"] == "nvcr.io/nvidia/nemo:25.11"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert config_map["data"] == {FILE.name: FILE.text}
    (plan,) = [volume for volume in job["template"]["spec"]["volumes"] if volume["name"] == "plan"]
    assert plan["configMap"]["name"] == config_map["metadata"]["name"]


def test_what_is_not_given_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    job = job_of(scenario_of(devices=64), plan_id=None)
    _, jobset = documents(job)
    assert jobset["metadata"] == {"name": "train"}
    assert "image" not in container_in(jobset)
    assert "activeDeadlineSeconds" not in job_in(jobset)
    assert annotations(job) == {}
    notes = " ".join(write(job, None).notes)
    for missing in ("No image", "No queue", "No topology"):
        assert missing in notes


NVL72 = "nvidia.com/gpu.clique"


@pytest.mark.parametrize(
    ("devices", "asked"),
    [
        (4, {}),
        (72, {"podset-required-topology": NVL72}),
        (
            144,
            {
                "podset-preferred-topology": "cloud.provider.com/topology-block",
                "podset-slice-required-topology": NVL72,
                "podset-slice-size": "18",
            },
        ),
        (80, {"podset-preferred-topology": "cloud.provider.com/topology-block"}),
    ],
    ids=["a node", "a domain", "two domains", "parts of domains"],
)
def test_domains_of_several_nodes(devices: int, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """72 devices of 4 to a node: 18 pods in a row belong together."""
    stand_in(monkeypatch, program())
    scenario = scenario_of(cluster="gb200-nvl72", devices=devices, global_batch_size=devices)
    options = SchedulerOptions(topology=OPTIONS.topology, domain_topology=NVL72)
    job = job_of(scenario, scheduler=options)
    assert annotations(job) == {f"kueue.x-k8s.io/{name}": value for name, value in asked.items()}
    notes = " ".join(write(job, None).notes)
    assert ("the nodes are no multiple of that" in notes) == (devices == 80)
    without = " ".join(write(job_of(scenario), None).notes)
    assert ("no domain-topology is given" in without) == (devices > 4)


@pytest.mark.parametrize("name", [*HOSTILE, "405B", "a" * 200, "x.y_z"])
def test_names_are_labels_of_dns(name: str) -> None:
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", kubernetes_name(name))
    # With -node-0- and an index, within 63.
    assert len(kubernetes_name(name)) <= 40


def test_devices_without_a_known_resource_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, program())
    with pytest.raises(Inexpressible, match=r"cluster\.accelerator tpu-v5p: no name of Google's tpu-v5p"):
        write(job_of(scenario_of(cluster="tpu-v5p", devices=8, global_batch_size=32)), None)


@pytest.mark.parametrize("options", [{"partition": "long"}, {"account": "lab"}])
def test_what_kubernetes_has_no_word_for_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="nothing that Kubernetes JobSet takes"):
        launch_of(job_of(small_scenario(), scheduler=SchedulerOptions(**options)), "jobset")


def test_a_job_whose_time_is_over_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """JobSet counts the deadline of a job among its failures unless a rule says otherwise."""
    stand_in(monkeypatch, program())

    def policy(**options: Any) -> Any:
        _, jobset = documents(job_of(scenario_of(devices=64), scheduler=SchedulerOptions(**options)))
        return jobset["spec"]["failurePolicy"]

    assert policy() == {"maxRestarts": 3}
    limited = job_of(small_scenario(), scheduler=SchedulerOptions(time_limit_s=60))
    assert any("time limit is that of each start" in note for note in write(limited, None).notes)
    (rule,) = policy(time_limit_s=86400)["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["DeadlineExceeded"])
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"]), "as JobSet wants names of rules"


# -- held against the API's models -------------------------------------------------------------------------------------


def models() -> Any:
    """Generated from the API's own OpenAPI documents, those of pods included."""
    if os.environ.get("CI"):
        pass
    return pytest.importorskip("kubeflow_trainer_api.models")


@pytest.mark.parametrize("options", [SchedulerOptions(), OPTIONS], ids=["nothing given", "all given"])
def test_the_api_reads_all_of_it(options: SchedulerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that a model does not know are lost on the way, values of another type are refused."""
    api = models()
    stand_in(monkeypatch, program())
    config_map, jobset = documents(job_of(scenario_of(devices=64), scheduler=options))
    assert api.JobsetV1alpha2JobSet.from_dict(jobset).to_dict() == jobset
    assert {name for name in config_map if name not in ("apiVersion", "kind", "metadata", "data")} == set()


def test_the_models_would_notice_a_misspelt_key(monkeypatch: pytest.MonkeyPatch) -> None:
    api = models()
    stand_in(monkeypatch, program())
    _, jobset = documents(job_of(scenario_of(devices=64)))
    job_in(jobset)["template"]["spec"]["restartpolicy"] = "Never"
    assert api.JobsetV1alpha2JobSet.from_dict(jobset).to_dict() != jobset
    job_in(jobset)["completions"] = "eight"
    with pytest.raises(ValueError, match="completions"):
        api.JobsetV1alpha2JobSet.from_dict(jobset)


# -- run as Kubernetes would -------------------------------------------------------------------------------------------


def test_the_container_starts_the_program(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod of one, with the ConfigMap mounted and its own name led to this machine."""
    stand_in(monkeypatch, program(launcher))
    job = job_of(small_scenario())
    place(write(job, None), tmp_path)
    config_map, jobset = documents(job)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name, text in config_map["data"].items():
        (mounted / name).write_text(text, encoding="utf-8")
    container = container_in(jobset)
    environment = {"JOB_COMPLETION_INDEX": "0"}
    for variable in container["env"]:
        environment[variable["name"]] = expanded(variable["value"], environment)
    # What is replaced is a trap for whatever was not marked as literal.
    trap = environment | {"touch owned": "owned", "NAME": "owned", "x": "owned"}
    words = [expanded(word, trap) for word in (*container["command"], *container["args"])]
    words[2] = words[2].replace("/etc/planner", str(mounted)).replace("train-node-0-0.train", "localhost")
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=os.environ | environment | {"PATH": path_with_quick_torchrun(tmp_path)},
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
        assert one["PLANNER_PLAN_ID"] == "0123abcd"
