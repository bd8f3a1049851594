"""``planner``: the entry point. Every way out is an exit code of ``planner.cli.exits`` and, at most, one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.exceptions import TyperException

from costmodel.errors import InvalidInput, Missing, PlannerError
from planner.cli.calibrate import calibrate
from planner.cli.check import check
from planner.cli.compare import compare
from planner.cli.db import app as db
from planner.cli.exits import Exit, tell, tell_failure, tell_invalid, tell_usage
from planner.cli.export import export
from planner.cli.keys import app as keys
from planner.cli.predict import predict
from planner.cli.serve import serve
from planner.cli.settings import config_path, read_config
from planner.cli.suggest import suggest
from planner.cli.sweep import sweep
from planner.cli.tune import tune
from planner.cli.validate import validate
from planner.cli.worker import worker
from planner.distribution import check_distribution

# What decides how the answer is told is for the caller to say, not for a file.
_ONLY_ON_THE_COMMAND_LINE = ("--json", "--config", "--help")

app = typer.Typer(
    name="planner",
    help="Ranked, feasible parallelism plans for training a model on a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("suggest")(suggest)
app.command("sweep")(sweep)
app.command("check")(check)
app.command("export")(export)
app.command("tune")(tune)
app.command("compare")(compare)
app.command("predict")(predict)
app.command("validate")(validate)
app.command("calibrate")(calibrate)
app.command("serve")(serve)
app.command("worker")(worker)
app.add_typer(db, name="db")
app.add_typer(keys, name="keys")


@app.callback()
def _root() -> None:
    """Ranked, feasible parallelism plans for training a model on a cluster."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line.

    Returns:
        The exit code; an answer that could not be written is a failure.
    """
    if sys.stdout is None:
        tell("planner: stdout is closed; the answer has nowhere to go")
        return Exit.FAILED
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`planner suggest | head`): nothing to say.
        _discard_output()
        return Exit.FAILED
    except OSError as error:
        _discard_output()
        tell(f"planner: {error}")
        return Exit.FAILED
    return code


def _discard_output() -> None:
    """Keep Python from flushing, on its way out, what stdout does not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    defaults: dict[str, dict[str, Any]] = {}
    try:
        check_distribution()
        command = typer.main.get_command(app)
        _read_variables(command)
        path = config_path(arguments)
        if path:
            defaults = _as_lists(read_config(path, _options(command)), command)
        code = command.main(args=arguments, prog_name="planner", standalone_mode=False, default_map=defaults)
    except InvalidInput as error:
        return tell_invalid(error, as_json=as_json)
    except TyperException as error:
        wrong = _unreadable_value(error, arguments, defaults)
        return tell_invalid(wrong, as_json=as_json) if wrong else tell_usage(error.format_message(), as_json=as_json)
    except typer.Exit as finished:
        return finished.exit_code
    except typer.Abort:
        return tell_failure("interrupted", as_json=as_json)
    except PlannerError as error:
        return tell_failure(str(error), as_json=as_json)
    return int(code or Exit.ANSWERED)


def _read_variables(command: object) -> None:
    """Let ``PLANNER_SEQ_LEN`` stand for ``--seq-len``, and so on for every option that takes a value."""
    for sub in getattr(command, "commands", {}).values():
        for parameter in sub.params:
            if parameter.name == "config" or getattr(parameter, "is_flag", False):
                continue
            variable = f"PLANNER_{parameter.name.upper()}"
            # Kubernetes sets PLANNER_PORT to tcp://10.1.2.3:8000 in every pod beside a service called planner.
            if not os.environ.get(variable, "").startswith("tcp://"):
                parameter.envvar = variable


def _as_lists(defaults: dict[str, dict[str, Any]], command: object) -> dict[str, dict[str, Any]]:
    """One text for an option that may be repeated stands for a list of one."""
    for name, sub in getattr(command, "commands", {}).items():
        for parameter in sub.params:
            value = defaults.get(name, {}).get(parameter.name)
            if getattr(parameter, "multiple", False) and isinstance(value, str):
                defaults[name][parameter.name] = [value]
    return defaults


def _unreadable_value(
    error: TyperException, arguments: Sequence[str], defaults: dict[str, dict[str, Any]]
) -> InvalidInput | None:
    """The error about a value of the wrong kind, in the words of all other bad input; None for any other error."""
    parameter = getattr(error, "param", None)
    if parameter is None or getattr(parameter, "name", None) is None:
        return None
    option = f"--{parameter.name.replace('_', '-')}"
    value: Any = next((table[parameter.name] for table in defaults.values() if parameter.name in table), None)
    value = os.environ.get(f"PLANNER_{parameter.name.upper()}", value)
    for position, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            value = argument.removeprefix(f"{option}=")
        elif argument == option and position + 1 < len(arguments):
            value = arguments[position + 1]
    message = error.format_message()
    if value is None:
        return Missing(option.removeprefix("--"), f"{option} is required") if "Missing" in message else None
    expected = "a whole number" if "integer" in message else "a number" if "number" in message else message
    return InvalidInput(option.removeprefix("--"), value, f"{expected} is expected")


def _options(command: object) -> dict[str, set[str]]:
    """Command -> the names of its options, without the leading dashes."""
    commands = getattr(command, "commands", {})
    return {
        name: {
            option.removeprefix("--")
            for parameter in sub.params
            for option in parameter.opts
            if option[:2] == "--" and option not in _ONLY_ON_THE_COMMAND_LINE
        }
        for name, sub in commands.items()
    }


if __name__ == "__main__":
    main()
