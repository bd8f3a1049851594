"""``planner sweep``: the best plan at every point of a range of devices, batches or sequence lengths."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from costmodel.errors import InvalidInput, Missing
from planner.cli import flags
from planner.cli.exits import Exit, tell
from planner.cli.progress_bar import progress_bar
from planner.counts import values_of
from planner.question import Question
from planner.sweeping import MOST_POINTS, REFUSED, Sweep, point_of, with_efficiency

Json = dict[str, Any]

_RANGES = "8..4096 doubles, 8..4096:8 goes in steps of 8, 8,16,61 lists."


def sweep(
    model: flags.Model,
    cluster: flags.Cluster,
    global_batch_size: Annotated[str, typer.Option(help=f"Sequences per optimizer step: {_RANGES}")],
    seq_len: Annotated[str, typer.Option(help="Tokens per sequence, the same way.")],
    devices: Annotated[str | None, typer.Option(help="Accelerators at hand, the same way.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Nodes at hand instead, the same way.")] = None,
    precision: flags.Precision = Question.precision,
    optimizer: flags.Optimizer = Question.optimizer,
    gradient_dtype: flags.GradientDtype = None,
    framework: flags.Framework = Question.framework,
    framework_version: flags.FrameworkVersion = None,
    calibration: flags.Calibration = None,
    objective: flags.Objective = Question.objective,
    price_per_device_hour: flags.Price = None,
    pin: flags.Pin = None,
    forbid: flags.Forbid = None,
    allow: flags.Allow = None,
    min_free_gib: flags.MinFreeGib = None,
    min_used: flags.MinUsed = Question.min_used,
    max_step_time: flags.MaxStepTime = None,
    batch_tolerance: flags.BatchTolerance = Question.batch_tolerance,
    max_seconds: Annotated[float, typer.Option(help="Deadline of the search of each point.")] = Question.max_seconds,
    seed: flags.Seed = Question.seed,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
    no_store: flags.NoStore = False,
    server: flags.Server = None,
) -> None:
    """Print a scaling curve: the best plan of every point, with its time, efficiency and cost.

    Points that were answered before come from the store. Ctrl-C ends the sweep with the points that are done. Exit
    codes: 0 some point is answered, 2 bad input, 3 nothing fits anywhere, 4 a deadline or Ctrl-C cut it, 5 failed.
    """
    at_hand = _devices(devices, nodes, cluster)
    asked = Sweep(
        question=Question(
            model=model,
            cluster=cluster,
            devices=at_hand[0],
            global_batch_size=1,
            seq_len=1,
            precision=precision,
            optimizer=optimizer,
            gradient_dtype=gradient_dtype,
            framework=framework,
            framework_version=framework_version,
            calibration=calibration,
            objective=objective,
            price_per_device_hour=price_per_device_hour,
            pins=pin or (),
            forbids=forbid or (),
            allow=allow or (),
            min_free_gib=min_free_gib,
            min_used=min_used,
            top=1,
            max_seconds=max_seconds,
            seed=seed,
            max_step_time_s=max_step_time,
            batch_tolerance=batch_tolerance,
        ),
        devices=at_hand,
        global_batch_sizes=values_of("global-batch-size", global_batch_size, MOST_POINTS),
        seq_lens=values_of("seq-len", seq_len, MOST_POINTS),
    )
    flags.check_store(server=server, no_store=no_store)
    points, warnings, interrupted = _collect(asked, _answers(asked, server, store=not no_store))
    for warning in warnings:
        tell(f"planner: warning: {warning}")
    if interrupted:
        tell(f"planner: interrupted: {len(points)} of {len(asked)} points are done")
    found = _found(asked, points, interrupted=interrupted)
    if as_json:
        sys.stdout.write(json.dumps(found, allow_nan=False) + "\n")
    else:
        from planner.cli.sweep_report import print_sweep

        print_sweep(found)
    raise typer.Exit(int(_exit_of(found)))


def _devices(devices: str | None, nodes: str | None, cluster: str) -> tuple[int, ...]:
    """How many devices there are at each point."""
    flags.check_one_of(devices, nodes)
    if nodes is not None:
        from costmodel.catalog.cluster_catalog import load_cluster

        per_node = load_cluster(cluster).devices_per_node
        return tuple(count * per_node for count in values_of("nodes", nodes, MOST_POINTS))
    if devices is None:
        raise Missing("devices", "--devices is required")
    return values_of("devices", devices, MOST_POINTS)


def _answers(asked: Sweep, server: str | None, *, store: bool) -> Iterator[Json | InvalidInput]:
    if not server:
        from planner.cli.asking_here import answers_here

        return answers_here(asked.questions(), store=store)
    from planner.cli.asking_server import answers_there

    return answers_there(list(asked.questions()), server)


def _collect(asked: Sweep, answers: Iterator[Json | InvalidInput]) -> tuple[list[Json], list[str], bool]:
    """The points, what the answers warn of, and whether Ctrl-C came before the last.

    Raises:
        InvalidInput: no point can be asked; what is wrong with the first.
    """
    points: list[Json] = []
    warnings: dict[str, None] = {}
    first_error: InvalidInput | None = None
    interrupted = False
    with progress_bar("points", len(asked)) as done:
        try:
            for question, answer in zip(asked.questions(), answers, strict=True):
                if isinstance(answer, InvalidInput):
                    first_error = first_error or answer
                else:
                    warnings |= dict.fromkeys(answer["warnings"])
                points.append(point_of(question, answer))
                done()
        except KeyboardInterrupt:
            interrupted = True
    if first_error is not None and all(point["status"] == REFUSED for point in points) and not interrupted:
        raise first_error
    return with_efficiency(points), list(warnings), interrupted


def _found(asked: Sweep, points: Iterable[Json], *, interrupted: bool) -> Json:
    return {
        "objective": asked.question.objective,
        "devices": list(asked.devices),
        "global_batch_sizes": list(asked.global_batch_sizes),
        "seq_lens": list(asked.seq_lens),
        "complete": not interrupted,
        "points": list(points),
    }


def _exit_of(found: Json) -> Exit:
    points = found["points"]
    if not found["complete"] or any(p["status"] in ("feasible", "unknown") for p in points):
        return Exit.CUT_SHORT
    return Exit.ANSWERED if any(p["plan"] is not None for p in points) else Exit.INFEASIBLE
