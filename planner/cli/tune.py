"""``planner tune``: tries the most promising plans on the real machine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.errors import InvalidInput, Missing
from planner.cli import flags
from planner.cli.exits import Exit, tell
from planner.cli.stopping import told_to_stop
from planner.question import Question

if TYPE_CHECKING:
    from db import records
    from db.store import Store
    from planner.profiling.runner import Runner
    from planner.studying.settings import StudySettings

Json = dict[str, Any]

_TRIAL_ENDED = re.compile(r"trial \d+: ")

# What --resume takes: how long it goes on, and where; what the study is about it knows itself.
_OF_A_RESUME = frozenset(
    {"runner", "trials", "max_minutes", "study", "resume", "launch", "folder", "as_json", "config"}
)


def tune(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="As in suggest; not with --resume.")] = None,
    cluster: Annotated[str | None, typer.Option(help="As in suggest; not with --resume.")] = None,
    devices: Annotated[int | None, typer.Option(help="Accelerators at hand.")] = None,
    global_batch_size: Annotated[int | None, typer.Option(help="Sequences per optimizer step.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sequence.")] = None,
    runner: Annotated[str, typer.Option(help="Where trials run: local, command or slurm.")] = "local",
    trials: Annotated[int, typer.Option(help="How many may be run at most.")] = 10,
    max_minutes: Annotated[float | None, typer.Option(help="End the study after so many minutes.")] = None,
    study: Annotated[str | None, typer.Option(help="Its name; made of model and moment by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the study of that name.")] = False,
    launch: Annotated[str | None, typer.Option(help="TOML file: how command and slurm start trials.")] = None,
    layers: Annotated[int | None, typer.Option(help="Run, and plan, a model of so many layers.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of a trial that count.")] = 10,
    warm_up: Annotated[int, typer.Option(help="Steps before them.")] = 3,
    step_timeout: Annotated[float, typer.Option(help="Seconds after which a step hangs.")] = 600.0,
    folder: Annotated[str | None, typer.Option(help="Where trials have their files.")] = None,
    precision: flags.Precision = Question.precision,
    optimizer: flags.Optimizer = Question.optimizer,
    gradient_dtype: flags.GradientDtype = None,
    framework: flags.Framework = Question.framework,
    framework_version: flags.FrameworkVersion = None,
    calibration: flags.Calibration = None,
    pin: flags.Pin = None,
    forbid: flags.Forbid = None,
    allow: flags.Allow = None,
    min_free_gib: flags.MinFreeGib = None,
    min_used: flags.MinUsed = Question.min_used,
    max_seconds: Annotated[float, typer.Option(help="Deadline of the search for candidates.")] = Question.max_seconds,
    seed: flags.Seed = Question.seed,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
) -> None:
    """Run the plans that promise most, a few steps each, and learn from each which to run next.

    Everything is kept in the database: --resume goes on after a stop, and the same command elsewhere helps. Ctrl-C ends
    it with what was measured. Exit codes: 0 something was measured, 2 bad input, 3 nothing ran, 4 Ctrl-C cut it, 5
    failed.
    """
    from db.store import Store
    from planner.studying.runners import runner_named
    from planner.studying.settings import StudySettings

    settings = StudySettings(
        runner=runner,
        trials=trials,
        max_minutes=max_minutes,
        steps=steps,
        warm_up=warm_up,
        step_timeout_s=step_timeout,
    )
    question = None
    if resume:
        _check_resumed(context)
    else:
        question = _question(
            model=model,
            cluster=cluster,
            devices=devices,
            global_batch_size=global_batch_size,
            seq_len=seq_len,
            precision=precision,
            optimizer=optimizer,
            gradient_dtype=gradient_dtype,
            framework=framework,
            framework_version=framework_version,
            calibration=calibration,
            pins=pin or (),
            forbids=forbid or (),
            allow=allow or (),
            min_free_gib=min_free_gib,
            min_used=min_used,
            max_seconds=max_seconds,
            seed=seed,
        )
    # Before there is a study: one whose trials nothing here can start would wait for somebody else for ever.
    started_by = runner_named(runner, launch) if question is not None else None
    with Store.open() as store:
        found = _opened(store, question, settings, study, layers)
        if found.runner != runner and _is_given(context, "runner"):
            raise InvalidInput("runner", runner, f"trials of {found.name} run by {found.runner}")
        cut = _run(store, found, settings, started_by or runner_named(found.runner, launch), folder)
        told = _told(store, found.id)
    if as_json:
        sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
    else:
        from planner.cli.tune_report import print_study

        print_study(told)
    raise typer.Exit(int(_exit_of(told, cut=cut)))


def _check_resumed(context: typer.Context) -> None:
    """Refuse what a study that goes on can't change any more.

    Raises:
        InvalidInput: such a flag is given.
    """
    for name, value in context.params.items():
        if name not in _OF_A_RESUME and _is_given(context, name):
            expected = (
                "a study that goes on keeps what it is about: leave this out, or leave out --resume for a new study"
            )
            raise InvalidInput(name.replace("_", "-"), value, expected)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether a flag stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _question(**given: Any) -> Question:
    for field in ("model", "cluster", "devices", "global_batch_size", "seq_len"):
        if given[field] is None:
            flag = field.replace("_", "-")
            raise Missing(flag, f"--{flag} is required, unless --resume goes on with a study")
    return Question(**given)


def _opened(
    store: Store, question: Question | None, settings: StudySettings, name: str | None, layers: int | None
) -> records.Study:
    """The study: a new one, or that of the name."""
    from planner.resolving import request_of
    from planner.studying.opening import open_study, resume_study
    from planner.studying.shallower import with_layers

    now = datetime.now(UTC)
    if question is None:
        if name is None:
            raise Missing("study", "--resume needs --study NAME")
        return resume_study(store, name, settings, now)
    request = request_of(question)
    if layers is not None:
        request = with_layers(request, layers)
    name = name or f"{request.scenario.model.name} {now:%Y-%m-%d %H:%M:%S}"
    try:
        return open_study(store, request, settings, name=name, now=now)
    except InvalidInput as error:
        if error.field == "name":
            raise InvalidInput("study", name, "there is a study of that name: go on with it by --resume") from None
        raise


def _run(store: Store, study: records.Study, settings: StudySettings, runner: Runner, folder: str | None) -> bool:
    """Work on the study until it is over; whether Ctrl-C cut it."""
    from planner.studying.folders import trials_folder
    from planner.studying.worker import Worker

    with store.reading() as repos:
        done = sum(trial.state == "done" for trial in repos.studies.trials(study.id))
    with _bar(study, settings.trials, done) as heard:
        worker = Worker(
            store=store,
            runners={study.runner: runner},
            folder=Path(folder) if folder else trials_folder(),
            heard=heard,
        )
        with told_to_stop(worker.stopping.set) as was_cut:
            worker.run(study.id)
        return was_cut()


@contextmanager
def _bar(study: records.Study, total: int, before: int) -> Iterator[Any]:
    """What the worker tells: a bar on a terminal, lines elsewhere."""
    from planner.cli.progress_bar import progress_bar

    terminal = sys.stderr is not None and sys.stderr.isatty()
    with progress_bar("trials", total) as done:
        for _ in range(before):
            done()

        def heard(_: records.Study, said: str) -> None:
            tell(f"planner: {said}")
            if _TRIAL_ENDED.match(said):
                done()

        if not terminal:
            tell(f"planner: study {study.name}")
        yield heard


def _told(store: Store, study_id: str) -> Json:
    from planner.studying.progress import Progress
    from planner.studying.telling import study_in_words

    with store.reading() as repos:
        study = repos.studies.get(study_id)
        assert study is not None, "nobody removes studies"
        return study_in_words(Progress.of(repos, study, tried_only=True))


def _exit_of(told: Json, *, cut: bool) -> Exit:
    if told["state"] == "failed":
        raise InvalidInput("study", told["name"], told["ended_because"])
    if cut:
        return Exit.CUT_SHORT
    return Exit.ANSWERED if told["best"] is not None else Exit.INFEASIBLE
