"""``planner suggest``: ranked plans for a model, a cluster and a batch."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from costmodel.errors import InvalidInput
from planner.cli.exits import exit_of, tell
from planner.cli.remarks import earlier_in_words
from planner.question import Question

_LATER = "this version does not have it yet; leave it out"


def suggest(
    model: Annotated[str, typer.Option(help="Catalog name, or a Hugging Face config.json.")],
    cluster: Annotated[str, typer.Option(help="Catalog name, or a YAML file.")],
    devices: Annotated[int, typer.Option(help="Accelerators at hand.")],
    global_batch_size: Annotated[int, typer.Option(help="Sequences per optimizer step.")],
    seq_len: Annotated[int, typer.Option(help="Tokens per sequence.")],
    precision: Annotated[str, typer.Option(help="Precision recipe: bf16, fp8, mxfp8, fp32, ...")] = Question.precision,
    optimizer: Annotated[
        str, typer.Option(help="Optimizer recipe: adamw, adamw-8bit, muon, sgd, ...")
    ] = Question.optimizer,
    gradient_dtype: Annotated[
        str | None, typer.Option(help="What gradients are kept and reduced in: fp32 or bf16; the framework's own.")
    ] = None,
    framework: Annotated[str, typer.Option(help="Training framework whose rules apply.")] = Question.framework,
    framework_version: Annotated[str | None, typer.Option(help="Its version; the current one by default.")] = None,
    objective: Annotated[str, typer.Option(help="step_time, cost or fewest_devices.")] = Question.objective,
    price_per_device_hour: Annotated[float | None, typer.Option(help="For the cost objective.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Fix an axis: tp=8, pp=4,8,16, dp=4.., recompute=full.")] = None,
    forbid: Annotated[list[str] | None, typer.Option(help="Rule values out, as in recompute=full.")] = None,
    allow: Annotated[list[str] | None, typer.Option(help="Let plans use more: offload.")] = None,
    min_free_gib: Annotated[float | None, typer.Option(help="Memory to keep free on every device.")] = None,
    min_used: Annotated[float, typer.Option(help="Share of the devices that a plan must use.")] = Question.min_used,
    top: Annotated[int, typer.Option(help="How many different plans.")] = Question.top,
    max_seconds: Annotated[
        float, typer.Option(help="Deadline; the best plans found by then are printed.")
    ] = Question.max_seconds,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = Question.seed,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Walk the six steps of choosing by hand, and say where the best plan differs."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON on stdout.")] = False,
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Search anew, and store nothing; needs no database.")
    ] = False,
    server: Annotated[
        str | None, typer.Option(help="URL of a planner that is to search; its API key is read from PLANNER_API_KEY.")
    ] = None,
    batch_tolerance: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Print ranked plans, best first, or the reason why there is none.

    A question that was answered before is answered from the store, which stderr says. Exit codes: 0 answered, 2 bad
    input, 3 nothing fits, 4 cut by --max-seconds, 5 failed.
    """
    if batch_tolerance:
        raise InvalidInput("batch-tolerance", batch_tolerance, _LATER)
    question = Question(
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
        if answer.get("explanation"):  # none where nothing could be priced
            from planner.cli.explanation_report import print_explanation

            print_explanation(answer["explanation"])
    raise typer.Exit(int(code))


def _answer(question: Question, server: str | None, *, store: bool) -> dict[str, Any]:
    if not server:
        from planner.cli.asking_here import answer_here

        return answer_here(question, store=store)
    if not store:
        raise InvalidInput("no-store", True, "a server stores what it answers; leave out --no-store, or --server")
    from planner.cli.asking_server import answer_there

    return answer_there(question, server)
