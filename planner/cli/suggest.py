"""``planner suggest``: ranked plans for a model, a cluster and a batch."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from planner.cli import flags
from planner.cli.at_hand import devices_at_hand
from planner.cli.exits import exit_of, tell
from planner.cli.remarks import earlier_in_words
from planner.question import Question


def suggest(
    model: flags.Model,
    cluster: flags.Cluster,
    global_batch_size: Annotated[int, typer.Option(help="Sequences per optimizer step.")],
    seq_len: Annotated[int, typer.Option(help="Tokens per sequence.")],
    devices: Annotated[
        str | None, typer.Option(help="Accelerators at hand; 8..4096 for plans of at least 8, at most 4096.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Nodes at hand instead: 61, or which ones, as 0-3,7,9-60.")] = None,
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
    top: Annotated[int, typer.Option(help="How many different plans.")] = Question.top,
    max_seconds: Annotated[
        float, typer.Option(help="Deadline; the best plans found by then are printed.")
    ] = Question.max_seconds,
    seed: flags.Seed = Question.seed,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Walk the six steps of choosing by hand, and say where the best plan differs."),
    ] = False,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Also the plans that no other beats in time, devices and free memory.")
    ] = False,
    shortlist: Annotated[
        float | None,
        typer.Option(help="Also few plans for trials that hold the fastest with this probability, as 0.9."),
    ] = None,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
    no_store: flags.NoStore = False,
    server: flags.Server = None,
) -> None:
    """Print ranked plans, best first, or the reason why there is none.

    A question that was answered before is answered from the store, which stderr says. Exit codes: 0 answered, 2 bad
    input, 3 nothing fits, 4 cut by --max-seconds, 5 failed.
    """
    at_hand = devices_at_hand(devices, nodes, cluster)
    question = Question(
        model=model,
        cluster=at_hand.cluster,
        devices=at_hand.devices,
        min_devices=at_hand.min_devices,
        global_batch_size=global_batch_size,
        seq_len=seq_len,
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
        top=top,
        max_seconds=max_seconds,
        seed=seed,
        explain=explain,
        max_step_time_s=max_step_time,
        batch_tolerance=batch_tolerance,
        pareto=pareto,
        shortlist=shortlist,
    )
    answer = _answer(question, server, store=not no_store)
    earlier = earlier_in_words(answer)
    if earlier is not None:
        tell(f"planner: {earlier}")
    for warning in answer["warnings"]:
        tell(f"planner: warning: {warning}")
    code = exit_of(answer)
    if as_json:
        sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    else:
        from planner.cli.report import print_answer

        print_answer(answer)
        if answer.get("pareto") or answer.get("shortlist"):
            from planner.cli.lists_report import print_lists

            print_lists(answer)
        if answer.get("explanation"):  # none where nothing could be priced
            from planner.cli.explanation_report import print_explanation

            print_explanation(answer["explanation"])
    raise typer.Exit(int(code))


def _answer(question: Question, server: str | None, *, store: bool) -> dict[str, Any]:
    if not server:
        from planner.cli.asking_here import answer_here

        return answer_here(question, store=store)
    flags.check_store(server=server, no_store=not store)
    from planner.cli.asking_server import answer_there

    return answer_there(question, server)
