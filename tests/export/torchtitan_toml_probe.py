"""Asks torchtitan 0.2 about TOML files. Runs in a process of its own: ``torchtitan_toml_probe.py CASES ANSWERS``.

Each file is read by torchtitan's own ``ConfigManager`` with the arguments that it is started with. What a CPU lacks is
put aside, no check with it: kernels of Triton that are imported with the package.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

sys.modules["torchtitan.models.moe.kernels"] = mock.MagicMock()

from torchtitan.config import ConfigManager  # noqa: E402


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """What is refused, or what torchtitan read."""
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in case["files"].items():
            Path(name).write_text(text, encoding="utf-8")
        try:
            return {"refused": None, "read": dataclasses.asdict(ConfigManager().parse_args(case["arguments"]))}
        except (Exception, SystemExit) as error:
            return {"refused": f"{type(error).__name__}: {error}"}


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = Path(sys.argv[2]).resolve()
    answers.write_text(json.dumps([answer(case) for case in asked]), encoding="utf-8")


if __name__ == "__main__":
    main()
