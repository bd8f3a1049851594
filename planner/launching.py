"""The use cases of ``planner.export``: a plan in the words of a target, and a configuration as a plan to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

from costmodel.catalog.documents import read_text
from costmodel.errors import InvalidInput, Missing
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from planner.check.check import Checked, check_fields
from planner.check.complete import Completion
from planner.check.given import given_plan
from planner.check.judge import judge
from planner.check.plan_file import STDIN, plan_in, read_stdin
from planner.check.question import CheckQuestion
from planner.export.job import Job, flag_of
from planner.export.launch import Launch
from planner.export.reading import Read
from planner.export.target import Target
from planner.export.targets import load_target

Json = dict[str, Any]

_RULES_TOLD = 3
# Of arguments, of JSON; no file that people have begins so.
_STARTS_A_TEXT = ("-", "{", "[")


def launch_of(job: Job, target: str, version: str | None = None) -> Launch:
    """A plan in the words of a target.

    Raises:
        InvalidInput: there is no such target or version, it takes no plans of this framework, or it has no word for
            an option of the job.
        Inexpressible: the target can't say all of the plan.
    """
    found = load_target(target)
    _check_asked(found, job, version)
    framework = job.plan.framework
    if found.frameworks and framework not in found.frameworks:
        expected = (
            f"the plan is of {framework}, and {found.title} takes those of {' or '.join(found.frameworks)}: ask for "
            f"one with --framework {found.frameworks[0]}"
        )
        raise InvalidInput("target", target, expected)
    return found.write(job, version)


def _check_asked(target: Target, job: Job, version: str | None) -> None:
    """Refuse what the target would not look at, so that nobody believes that it is in the files.

    Raises:
        InvalidInput: it has no such version, or no word for an option of the job.
    """
    # A scheduler's version is that of the framework in it, whose own target looks at it.
    if version is not None and not target.versions and target.kind != "scheduler":
        raise InvalidInput("target-version", version, f"{target.title} has no versions: leave it out")
    taken = tuple(map(flag_of, target.options))
    for flag, value in job.scheduler.given().items():
        if flag not in taken:
            takes = f"it takes {', '.join(taken)}" if taken else "it takes no options of jobs"
            raise InvalidInput(flag, value, f"it is nothing that {target.title} takes: {takes}")


def legal_job(scenario: Scenario, completion: Completion, **more: Any) -> Job:
    """The job of a plan.

    Raises:
        InvalidInput: the plan is illegal.
    """
    broken = judge(completion, scenario).illegal
    if broken:
        reasons = "; ".join(f"{entry.rule}: {entry.reason}" for entry in broken[:_RULES_TOLD])
        rest = f" and {len(broken) - _RULES_TOLD} more" if len(broken) > _RULES_TOLD else ""
        raise InvalidInput("plan", completion.plan.framework, f"only legal plans can be launched ({reasons}{rest})")
    plan = Plan.model_validate(completion.plan.model_dump())
    return Job(scenario=scenario, plan=plan, **more)


def job_of_document(asked: CheckQuestion, document: Mapping[str, Any], rank: int = 1, **more: Any) -> Job:
    """The job of a plan in a document, under the scenario of the flags, and of the answer that the document is.

    Args:
        rank: which plan of an answer.

    Raises:
        InvalidInput: a field or a flag is unusable or missing, or the plan is illegal.
    """
    fields, _ = plan_in(dict(document), rank)
    about = document.get("scenario")
    names = about if isinstance(about, Mapping) else {}
    asked = replace(
        asked,
        model=asked.model or _named("model", names),
        cluster=asked.cluster or _named("cluster", names),
        devices=asked.devices or _devices(names),
    )
    given = given_plan(asked, fields)
    return legal_job(given.scenario, given.completion, **more)


def _named(field: str, names: Mapping[str, Any]) -> str:
    found = names.get(field)
    if not isinstance(found, str):
        raise Missing(field, f"--{field} is required: the plan's file does not name it")
    return found


def _devices(names: Mapping[str, Any]) -> int | None:
    found = names.get("devices")
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise InvalidInput("scenario.devices", found, "a whole number is expected in the plan's file")
    return found


def check_configuration(asked: CheckQuestion, target: str, source: str) -> Checked:
    """Judge what a framework's configuration makes of a plan; the answer's ``read`` says how it was understood.

    Args:
        source: the path of a file, ``-`` for stdin, or the text itself.

    Raises:
        InvalidInput: the target reads nothing, the text can't be read, or the scenario lacks something.
    """
    found = load_target(target, "from")
    if found.read is None:
        raise InvalidInput("from", target, f"{found.title} says nothing that a plan could be read from")
    read = found.read(_text_of(source))
    if not asked.model:
        if read.model is None:
            raise InvalidInput("model", None, f"these words of {found.title} have no model's shape: give --model")
        asked = replace(asked, model=read.model)
    framework = {"framework": found.frameworks[0]} if found.frameworks else {}
    flags = {"devices_used": asked.devices, "global_batch_size": asked.global_batch_size, "seq_len": asked.seq_len}
    said_again = {name for name in read.defaulted if flags[name] is not None}
    plan = {name: value for name, value in read.plan.items() if name not in said_again}
    if asked.global_batch_size is None and "global_batch_size" not in plan and read.batch_per_replica and asked.devices:
        # Data parallelism takes what the other degrees leave of the devices.
        replicas = asked.devices // prod(plan.get(axis, 1) for axis in ("tp", "cp", "pp"))
        plan["global_batch_size"] = read.batch_per_replica * max(replicas, 1)
        meaning = f"{read.batch_per_replica} sequences * {max(replicas, 1)} replicas of {asked.devices} devices"
        read = replace(read, meanings={**read.meanings, "global_batch_size": meaning})
    checked = check_fields(asked, {**framework, **plan})
    return Checked(scenario=checked.scenario, answer=checked.answer | {"read": _in_words(found.name, read)})


def _in_words(target: str, read: Read) -> Json:
    told = asdict(replace(read, model=None))
    del told["model"], told["plan"], told["defaulted"], told["batch_per_replica"]
    return {"target": target, **told, "ignored": list(read.ignored), "notes": list(read.notes)}


def _text_of(source: str) -> str:
    """What a file or stdin holds; a text of arguments, or of JSON, stands for itself."""
    if source == STDIN:
        return read_stdin()
    if source.lstrip()[:1] in _STARTS_A_TEXT or (len(source.split()) > 1 and not _is_file(source)):
        return source
    return read_text(Path(source), "from")


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except OSError:  # too long for a path
        return False
