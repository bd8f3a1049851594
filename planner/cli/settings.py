"""Defaults from ``--config planner.toml``: flags win over ``PLANNER_*`` variables, which win over the file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import InvalidInput, UnknownName, UnreadableFile


def config_path(arguments: Sequence[str]) -> str | None:
    """The file that ``--config`` or ``PLANNER_CONFIG`` names."""
    for position, argument in enumerate(arguments):
        if argument == "--config":
            if position + 1 == len(arguments):
                raise InvalidInput("config", "", "name a TOML file after --config")
            return arguments[position + 1]
        if argument.startswith("--config="):
            return argument.removeprefix("--config=")
    return os.environ.get("PLANNER_CONFIG") or None


def read_config(path: str, commands: Mapping[str, Collection[str]]) -> dict[str, dict[str, Any]]:
    """Defaults per command. Top-level keys hold for every command that has them; a ``[command]`` table for that one.

    Args:
        commands: command -> its option names, with dashes.

    Raises:
        UnreadableFile: no such file, or no TOML.
        UnknownName: a key that no command has.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadableFile("config", path, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile("config", path, f"it can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFile("config", path, f"it must be TOML: {error}") from None
    shared = {_option(key): value for key, value in data.items() if not isinstance(value, dict)}
    every_option = {option for options in commands.values() for option in options}
    for key in shared:
        if key not in every_option:
            raise UnknownName("config", key, every_option)
    defaults: dict[str, dict[str, Any]] = {}
    for command, options in commands.items():
        defaults[command] = {key: value for key, value in shared.items() if key in options}
    for command, table in data.items():
        if not isinstance(table, dict):
            continue
        if command not in commands:
            raise UnknownName("config", command, commands)
        for key, value in table.items():
            if _option(key) not in commands[command]:
                raise UnknownName(f"config.{command}", key, commands[command])
            defaults[command][_option(key)] = value
    return {
        command: {option.replace("-", "_"): value for option, value in options.items()}
        for command, options in defaults.items()
    }


def _option(key: str) -> str:
    return key.replace("_", "-")
