"""``planner export``: a plan in the words of a framework or a scheduler."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.errors import InvalidInput, Missing
from planner.cli import flags
from planner.cli.exits import tell

if TYPE_CHECKING:
    from planner.export.launch import Launch


def export(
    target: Annotated[str | None, typer.Option(help="What to write for: megatron-lm, sbatch, trace, ...")] = None,
    plan: Annotated[
        str | None, typer.Option(help="Plan file, JSON or YAML: a plan, or an answer of suggest; - is stdin.")
    ] = None,
    id: Annotated[str | None, typer.Option(help="A stored plan instead: its id.")] = None,
    rank: Annotated[int, typer.Option(help="Which plan of an answer.")] = 1,
    target_version: Annotated[str | None, typer.Option(help="Version of the target; that of the plan.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the files; one file goes to stdout without it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files of the folder.")] = False,
    job_name: Annotated[str, typer.Option(help="Of a scheduler's job: any text.")] = "train",
    partition: Annotated[str | None, typer.Option(help="Of Slurm.")] = None,
    account: Annotated[str | None, typer.Option(help="Of Slurm.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="That the job may take: 36h, 90m, 1-12:00:00.")] = None,
    image: Annotated[str | None, typer.Option(help="Container image of the job.")] = None,
    queue: Annotated[str | None, typer.Option(help="Kueue's LocalQueue.")] = None,
    topology: Annotated[str | None, typer.Option(help="Node label of the units of network that hold a job.")] = None,
    domain_topology: Annotated[
        str | None, typer.Option(help="Node label of scale-up domains larger than a node (NVL72).")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="How often a failed job is started again, where that is counted; 3 by default.")
    ] = None,
    list_targets: Annotated[bool, typer.Option("--list", help="List the targets and their versions.")] = False,
    model: Annotated[str | None, typer.Option(help="As in suggest, if the plan's file doesn't name it.")] = None,
    cluster: Annotated[str | None, typer.Option(help="As in suggest, if the plan's file doesn't name it.")] = None,
    devices: Annotated[int | None, typer.Option(help="Accelerators at hand; those of the plan by default.")] = None,
    global_batch_size: Annotated[int | None, typer.Option(help="Sequences per step, if the plan has none.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sequence, if the plan has none.")] = None,
    precision: Annotated[str | None, typer.Option(help="Precision recipe, if the plan has none.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Optimizer recipe, if the plan has none.")] = None,
    gradient_dtype: flags.GradientDtype = None,
    framework: Annotated[str | None, typer.Option(help="Training framework, if the plan has none.")] = None,
    framework_version: flags.FrameworkVersion = None,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
    server: Annotated[str | None, typer.Option(help="URL of a planner that has the plan of --id.")] = None,
) -> None:
    """Write what launches a plan.

    What the target can't say of the plan is refused with the whole list, never left out. Exit codes: 0 written, 2 bad
    input or a plan that can't be said, 5 failed.
    """
    if list_targets:
        _list(as_json=as_json)
        return
    if not target:
        raise Missing("target", "--target is required; --list shows them")
    if (plan is None) == (id is None):
        raise Missing("plan", "give --plan or --id, one of them")
    about_job = _about_job(
        job_name,
        time_limit,
        partition=partition,
        account=account,
        image=image,
        queue=queue,
        topology=topology,
        domain_topology=domain_topology,
        restarts=restarts,
    )
    if id is not None:
        written = _stored(id, target, target_version, server, about_job)
    else:
        from planner.check.plan_file import read_document
        from planner.check.question import CheckQuestion
        from planner.launching import job_of_document, launch_of

        asked = CheckQuestion(
            plan=plan or "",
            model=model or "",
            cluster=cluster or "",
            devices=devices,
            global_batch_size=global_batch_size,
            seq_len=seq_len,
            precision=precision,
            optimizer=optimizer,
            gradient_dtype=gradient_dtype,
            framework=framework,
            framework_version=framework_version,
        )
        job = job_of_document(asked, read_document(asked.plan), rank, **about_job)
        written = launch_of(job, target, target_version)
    _deliver(written, out, force=force, as_json=as_json)


def _about_job(name: str, time_limit: str | None, **options: Any) -> dict[str, Any]:
    """What a scheduler is told beside the plan, as fields of a job."""
    from planner.export.job import SchedulerOptions, time_limit_of

    seconds = None if time_limit is None else time_limit_of(time_limit)
    return {"name": name, "scheduler": SchedulerOptions(time_limit_s=seconds, **options)}


def _stored(plan_id: str, target: str, version: str | None, server: str | None, about_job: Mapping[str, Any]) -> Launch:
    if server:
        from planner.export.job import Job

        usual = {"name": Job.name, "scheduler": type(about_job["scheduler"])()}
        if about_job != usual:
            raise InvalidInput("server", server, "a server takes no options of jobs: fetch the plan, and use --plan")
        from planner.cli.asking_server import launch_there

        return launch_there(server, plan_id, target, version)
    from db.store import Store
    from planner.launching import launch_of
    from planner.stored.jobs import stored_job

    with Store.open() as store, store.reading() as repos:
        job = stored_job(repos, plan_id, **about_job)
    if job is None:
        raise InvalidInput("id", plan_id, "the database has no such plan")
    return launch_of(job, target, version)


def _deliver(written: Launch, out: str | None, *, force: bool, as_json: bool) -> None:
    """Write the files, or print the only one."""
    from planner.export.files import write_all

    if out is not None:
        paths = write_all(written.files, out, force=force)
        for path in paths:
            tell(f"planner: wrote {path}")
    elif not as_json and len(written.files) > 1:
        names = ", ".join(file.name for file in written.files)
        raise Missing("out", f"{written.target} takes {len(written.files)} files ({names}): give --out FOLDER")
    if as_json:
        sys.stdout.write(json.dumps(written.document(), allow_nan=False) + "\n")
        return
    if out is None:
        sys.stdout.write(written.files[0].text)
    for note in written.notes:
        tell(f"planner: note: {note}")
    if written.command:
        tell(f"planner: start it with: {written.command}")


def _list(*, as_json: bool) -> None:
    from planner.export.targets import TARGETS

    found: list[Mapping[str, Any]] = [
        {
            "name": target.name,
            "title": target.title,
            "kind": target.kind,
            "frameworks": list(target.frameworks),
            "versions": list(target.versions),
            "read": target.read is not None,
            "verified": target.verified,
        }
        for target in TARGETS
    ]
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    from planner.cli.export_report import print_targets

    print_targets(found)
