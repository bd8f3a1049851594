"""compose.yaml without an engine: everything that it refers to is there, and nothing in it is misspelt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from dockerfile import Broken, stages

_TOP = frozenset({"name", "services", "volumes", "networks", "secrets", "configs"})
# Of the Compose Specification's, those that ours may use.
_OF_SERVICE = frozenset(
    {"build", "cap_add", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "env_file", "environment"}
    | {"healthcheck", "image", "init", "networks", "ports", "read_only", "restart", "secrets", "security_opt"}
    | {"shm_size", "stop_grace_period", "tmpfs", "user", "volumes"}
)
_OF_HEALTHCHECK = frozenset({"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"})
_CONDITIONS = frozenset({"service_started", "service_healthy", "service_completed_successfully"})
_RESTARTS = frozenset({"no", "always", "on-failure", "unless-stopped"})
_LIMITS = frozenset({"cpus", "memory", "pids"})
_VARIABLE = re.compile(r"\$\{(\w+)(?::?([-?])([^}]*))?\}")
_PORTS = re.compile(r"(?:[\d.]+:)?(\d+)(?:-(\d+))?:(\d+)")
Json = dict[str, Any]


def check_composition(path: Path) -> None:
    """Look through a compose file.

    Raises:
        Broken: the first thing that is wrong.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise Broken(f"{path.name}: {error}") from None
    _known(found, _TOP | {name for name in found if name.startswith("x-")}, path.name)
    services: Json = found["services"]
    for name, service in services.items():
        where = f"{path.name}: services.{name}"
        _known(service, _OF_SERVICE, where)
        _check_source(service, path.parent, where)
        _check_health(service, where)
        _check_needs(name, service, services, where)
        _check_volumes(service, found.get("volumes") or {}, path.parent, where)
        _check_running(service, where)
    _check_cycles(services, path.name)
    _check_ports(services, path.name)
    for variable, kind, _ in _VARIABLE.findall(path.read_text(encoding="utf-8")):
        if not kind:
            raise Broken(f"{path.name}: ${{{variable}}} has neither a default nor a message for when it is missing")


def own_commands(path: Path) -> list[list[str]]:
    """What the services that run our image run in it, where that is not its default."""
    services: Json = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    return [service["command"] for service in services.values() if "build" in service and "command" in service]


def _known(found: Json, allowed: frozenset[str] | set[str], where: str) -> None:
    unknown = sorted(set(found) - allowed)
    if unknown:
        raise Broken(f"{where}: {', '.join(unknown)} is not known")


def _check_source(service: Json, folder: Path, where: str) -> None:
    image = service.get("image", "")
    if not image or ":" not in image:
        raise Broken(f"{where}: an image with a tag is expected")
    if "build" not in service:
        return
    context = folder / service["build"]["context"]
    file = context / service["build"].get("dockerfile", "Dockerfile")
    if not file.is_file():
        raise Broken(f"{where}: build: there is no {file}")
    arguments = {text.partition("=")[0] for stage in stages(file) for word, text in stage.instructions if word == "ARG"}
    _known(service["build"].get("args", {}), arguments, f"{where}.build.args")


def _check_health(service: Json, where: str) -> None:
    health = service.get("healthcheck", {})
    _known(health, _OF_HEALTHCHECK, f"{where}.healthcheck")
    if health and not health.get("disable") and health["test"][0] not in ("CMD", "CMD-SHELL"):
        raise Broken(f"{where}.healthcheck: test begins with CMD or CMD-SHELL")


def _check_needs(name: str, service: Json, services: Json, where: str) -> None:
    for other, how in service.get("depends_on", {}).items():
        if other not in services or other == name:
            raise Broken(f"{where}.depends_on: there is no other service {other!r}")
        condition = how["condition"]
        if condition not in _CONDITIONS:
            raise Broken(f"{where}.depends_on.{other}: {condition!r} is no condition")
        if condition == "service_healthy" and not services[other].get("healthcheck", {}).get("test"):
            raise Broken(f"{where}.depends_on.{other}: it has no health check to wait for")
        if condition == "service_completed_successfully" and services[other].get("restart") != "no":
            raise Broken(f'{where}.depends_on.{other}: it never completes, restart has to be "no"')


def _check_volumes(service: Json, declared: Json, folder: Path, where: str) -> None:
    for volume in service.get("volumes", []):
        source, colon, target = volume.partition(":")
        if not colon or not target.startswith("/"):
            raise Broken(f"{where}.volumes: {volume!r} names no place in the container")
        if source.startswith((".", "/")):
            if not (folder / source).exists():
                raise Broken(f"{where}.volumes: there is no {source}")
        elif source not in declared:
            raise Broken(f"{where}.volumes: {source!r} is not declared")


def _check_running(service: Json, where: str) -> None:
    if str(service.get("restart")) not in _RESTARTS:
        raise Broken(f'{where}: restart is one of {", ".join(sorted(_RESTARTS))}, in quotes where it is "no"')
    limits = service.get("deploy", {}).get("resources", {}).get("limits")
    if not limits:
        raise Broken(f"{where}: it has no limits (deploy.resources.limits)")
    _known(limits, _LIMITS, f"{where}.deploy.resources.limits")
    for name, value in service.get("environment", {}).items():
        if not isinstance(value, str):
            raise Broken(f"{where}.environment.{name}: write it in quotes")


def _check_cycles(services: Json, where: str) -> None:
    left = {name: set(service.get("depends_on", {})) for name, service in services.items()}
    while left:
        free = {name for name, needs in left.items() if not needs}
        if not free:
            raise Broken(f"{where}: {', '.join(sorted(left))} wait for each other")
        left = {name: needs - free for name, needs in left.items() if name not in free}


def _check_ports(services: Json, where: str) -> None:
    """Every replica gets a port of the machine's, and no port is given twice."""
    taken: dict[int, str] = {}
    for name, service in services.items():
        replicas = service.get("deploy", {}).get("replicas", 1)
        for text in service.get("ports", []):
            filled = _VARIABLE.sub(lambda match: match[3], text)
            match = _PORTS.fullmatch(filled)
            if match is None:
                raise Broken(f"{where}: services.{name}.ports: {text!r} is not ADDRESS:FROM-TO:PORT")
            first, last = int(match[1]), int(match[2] or match[1])
            if last - first + 1 < replicas:
                raise Broken(
                    f"{where}: services.{name}.ports: {replicas} replicas need as many ports, {text} has fewer"
                )
            for port in range(first, last + 1):
                if port in taken:
                    raise Broken(f"{where}: {taken[port]} and {name} both take port {port}")
                taken[port] = name
