"""``planner check``: is this plan legal, does it fit, what does it take, and what would be better."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.errors import InvalidInput, Missing
from planner.cli import flags
from planner.cli.exits import Exit, tell
from planner.question import Question

if TYPE_CHECKING:
    from planner.check.check import Checked


def check(
    cluster: flags.Cluster,
    plan: Annotated[
        str | None, typer.Option(help="Plan file, JSON or YAML: a plan, or an answer of suggest; - is stdin.")
    ] = None,
    configuration: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--from",
            metavar="TARGET SOURCE",
            help="Instead of --plan a framework's configuration: megatron-lm, deepspeed, ...; a file, its text, or -.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="As in suggest; may be left out where a configuration has the model's shape.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Accelerators at hand; those of the plan by default.")] = None,
    global_batch_size: Annotated[int | None, typer.Option(help="Sequences per step, if the plan has none.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sequence, if the plan has none.")] = None,
    precision: Annotated[str | None, typer.Option(help="Precision recipe, if the plan has none.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Optimizer recipe, if the plan has none.")] = None,
    gradient_dtype: flags.GradientDtype = None,
    framework: Annotated[str | None, typer.Option(help="Training framework, if the plan has none.")] = None,
    framework_version: Annotated[
        str | None, typer.Option(help="Judge under this version; that of the plan by default.")
    ] = None,
    calibration: flags.Calibration = None,
    objective: Annotated[str, typer.Option(help="What the best plan minimises, as in suggest.")] = Question.objective,
    price_per_device_hour: Annotated[float | None, typer.Option(help="For the cost objective.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="What other plans must keep: tp=8, pp=4,8,16.")] = None,
    forbid: Annotated[list[str] | None, typer.Option(help="What other plans must avoid: recompute=full.")] = None,
    min_free_gib: flags.MinFreeGib = None,
    min_used: Annotated[float, typer.Option(help="Share of the devices that other plans use.")] = Question.min_used,
    max_seconds: Annotated[float, typer.Option(help="Deadline of the searches.")] = Question.max_seconds,
    seed: flags.Seed = Question.seed,
    no_best: Annotated[bool, typer.Option("--no-best", help="Do not search for the best plan.")] = False,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
) -> None:
    """Judge a plan: legal, fitting, what it takes; the nearest plan that would do, and what the best would gain.

    Exit codes: 0 it fits, 2 bad input, 3 illegal, too big or not known to fit, 5 failed.
    """
    from planner.check.check import FITTING, check
    from planner.check.question import CheckQuestion

    def judged(asked: CheckQuestion) -> Checked:
        if configuration is None:
            return check(asked)
        from planner.launching import check_configuration

        return check_configuration(asked, *configuration)

    _check_given(plan, configuration, model)
    checked = judged(
        CheckQuestion(
            plan=plan or "",
            model=model or "",
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
            objective=objective,
            price_per_device_hour=price_per_device_hour,
            pins=pin or (),
            forbids=forbid or (),
            min_free_gib=min_free_gib,
            min_used=min_used,
            max_seconds=max_seconds,
            seed=seed,
            best=not no_best,
        )
    )
    answer = checked.answer
    for warning in answer["warnings"]:
        tell(f"planner: warning: {warning}")
    if as_json:
        sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    else:
        from planner.cli.check_report import print_check

        print_check(checked)
    raise typer.Exit(int(Exit.ANSWERED if answer["status"] in FITTING else Exit.INFEASIBLE))


def _check_given(plan: str | None, configuration: tuple[str, str] | None, model: str | None) -> None:
    """Refuse a command line that gives no plan, or two.

    Raises:
        InvalidInput: see the messages.
    """
    if configuration is not None and plan is not None:
        raise InvalidInput("plan", plan, "give --plan or --from, not both")
    if configuration is None and plan is None:
        raise Missing("plan", "--plan is required, or --from with a framework's configuration")
    if configuration is None and not model:
        raise Missing("model", "--model is required")
