"""A Kubernetes JobSet, queued by Kueue where a queue is named: one Indexed job, a pod on each node.

Pods find one another by the names that JobSet gives them, and a pod's index is its node's rank; Kueue's topology aware
scheduling lays neighbouring indices side by side (kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling). When a
pod fails the JobSet starts all of them again.
"""

from __future__ import annotations

import re
from typing import Any

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.schedulers.devices import needed, resource_of
from planner.export.schedulers.started import about, domain_nodes, environment_of, program_of, restarts_of
from planner.export.schedulers.texts import yaml_of
from planner.export.shell import command, launcher, plain_name, words_of
from planner.export.target import Target

NAME, TITLE = "jobset", "Kubernetes JobSet"
FILE = "jobset.yaml"
_JOB = "node"
_PORT = 29500
_FILES_AT = "/etc/planner"
# A pod is called NAME-node-0-INDEX-SUFFIX, its host without the suffix, within the 63 characters of a DNS label.
_LONGEST_NAME = 40
# Kubernetes reads $(NAME) in commands, arguments and variables, and $$ as a dollar.
_EXPANDED = re.compile(r"\$(?=[$(])")
_QUEUE = "kueue.x-k8s.io/queue-name"
_PLAN_ID = "planner/plan-id"


def write(job: Job, version: str | None) -> Launch:
    """The manifest, with the program's files in a ConfigMap."""
    program = program_of(job, version, NAME)
    resource = needed(resource_of(job, "kubernetes"), job, NAME)
    name = kubernetes_name(job.name)
    documents = [_config_map(name, program)] if program.files else []
    documents.append(_jobset(name, job, program, resource))
    return Launch(
        target=NAME,
        version=None,
        files=(LaunchFile(name=FILE, text=yaml_of(documents, about(job))),),
        command=f"kubectl apply -f {FILE}",
        notes=(*program.notes, *_notes(job)),
    )


def kubernetes_name(name: str) -> str:
    """A name as Kubernetes has them: small letters, digits and dashes, a letter first."""
    plain = re.sub(r"[._]+", "-", plain_name(name).lower())
    return (plain if plain[0].isalpha() else f"train-{plain}")[:_LONGEST_NAME].rstrip("-")


def literal(text: str) -> str:
    """The text as Kubernetes has to be told it, so that it expands nothing in it."""
    return _EXPANDED.sub("$$", text)


def _config_map(name: str, program: Program) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-plan"},
        "data": {file.name: file.text for file in program.files},
    }


def _jobset(name: str, job: Job, program: Program, resource: str) -> dict[str, Any]:
    options, nodes = job.scheduler, job.nodes
    metadata: dict[str, Any] = {"name": name}
    if options.queue is not None:
        metadata["labels"] = {_QUEUE: options.queue}
    if job.plan_id is not None:
        metadata["annotations"] = {_PLAN_ID: job.plan_id}
    deadline = {} if options.time_limit_s is None else {"activeDeadlineSeconds": options.time_limit_s}
    topology = _topology(job)
    pod_metadata = {"metadata": {"annotations": topology}} if topology else {}
    spec = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        # One pod that fails is all that fail: they can't go on without it.
        "backoffLimit": 0,
        **deadline,
        "template": {**pod_metadata, "spec": _pod(name, job, program, resource)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "failurePolicy": _failure_policy(job),
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": _JOB, "replicas": 1, "template": {"spec": spec}}],
        },
    }


def _failure_policy(job: Job) -> dict[str, Any]:
    """How often all pods are started again; a job whose time is over is not.

    To JobSet the end of the time is a failure like others, from which the job would be started with its whole time
    again (kubernetes-sigs/jobset, api v1alpha2, FailurePolicyRule).
    """
    policy: dict[str, Any] = {"maxRestarts": restarts_of(job)}
    if job.scheduler.time_limit_s is not None:
        over = {"name": "timeIsOver", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
        policy["rules"] = [over]
    return policy


def _topology(job: Job) -> dict[str, str]:
    """What Kueue is asked: the whole job in one unit if it can be, every scale-up domain's nodes in one domain."""
    options, joined = job.scheduler, domain_nodes(job)
    if job.nodes == 1:
        return {}
    if options.domain_topology is not None and job.nodes <= joined:
        return {"kueue.x-k8s.io/podset-required-topology": options.domain_topology}
    asked: dict[str, str] = {}
    if options.topology is not None:
        asked["kueue.x-k8s.io/podset-preferred-topology"] = options.topology
    if options.domain_topology is not None and joined > 1 and job.nodes % joined == 0:
        asked["kueue.x-k8s.io/podset-slice-required-topology"] = options.domain_topology
        asked["kueue.x-k8s.io/podset-slice-size"] = str(joined)
    return asked


def _pod(name: str, job: Job, program: Program, resource: str) -> dict[str, Any]:
    image = {} if job.scheduler.image is None else {"image": job.scheduler.image}
    environment = [{"name": key, "value": literal(value)} for key, value in environment_of(job, program).items()]
    mounts = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    # NCCL exchanges through shared memory inside a node, of which a container has 64 MB by itself.
    volumes: list[dict[str, Any]] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    if program.files:
        mounts.append({"name": "plan", "mountPath": _FILES_AT})
        volumes.append({"name": "plan", "configMap": {"name": f"{name}-plan"}})
    container = {
        "name": "train",
        **image,
        "command": ["bash", "-c", literal(_script(name, job, program)), NAME],
        "args": [literal(word) for word in words_of(program)],
        **({"env": environment} if environment else {}),
        "resources": {"limits": {resource: str(job.devices_per_node)}},
        "volumeMounts": mounts,
    }
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}


def _script(name: str, job: Job, program: Program) -> str:
    start = launcher(
        program,
        nodes=str(job.nodes),
        per_node=job.devices_per_node,
        rank='"$JOB_COMPLETION_INDEX"',
        address=f"{name}-{_JOB}-0-0.{name}",
        port=str(_PORT),
    )
    copying = [f"cp -L {_FILES_AT}/* ."] if program.files else []
    return "\n".join(["set -euo pipefail", *copying, *command(["exec " + start[0], *start[1:], '"$@"'])]) + "\n"


def _notes(job: Job) -> list[str]:
    options, joined = job.scheduler, domain_nodes(job)
    notes = [
        "What else the program needs goes to the end of the container's args.",
        "Requests of processors, memory and network devices (RDMA) are the site's: the manifest has none.",
    ]
    if options.image is None:
        notes.append("No image is given: the container needs one before it can be applied.")
    if options.queue is None:
        notes.append("No queue is given: the JobSet is not queued by Kueue.")
    if options.time_limit_s is not None:
        notes.append("The time limit is that of each start: a job that fails before and is started again has it anew.")
    if options.topology is None and job.nodes > 1:
        notes.append("No topology is given, the key of a node label: Kueue is not asked to keep the nodes together.")
    if joined > 1 and job.nodes > 1 and not any("required" in key for key in _topology(job)):
        why = "the nodes are no multiple of that" if options.domain_topology else "no domain-topology is given"
        notes.append(
            f"{min(joined, job.nodes)} pods in a row have to lie in one scale-up domain, which Kueue is not asked for: "
            f"{why}."
        )
    return notes


TARGET = Target(
    name=NAME,
    aliases=("kueue", "kubernetes"),
    title=TITLE,
    kind="scheduler",
    options=("time_limit_s", "image", "queue", "topology", "domain_topology", "restarts"),
    write=write,
    verified="read by the JobSet v1alpha2 and pod models of kubeflow-trainer-api 2.3.0; its container's command is run",
)
