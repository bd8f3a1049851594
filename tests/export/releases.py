"""Releases of frameworks that exports are held against, each in a folder and asked in a process of its own.

``$FRAMEWORK_RELEASES`` names a folder with one for each framework and in it one for each release: ``.ci/run`` fills it.
A release that is not there is skipped, but in CI, where it is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.differential.test_frameworks import missing_packages

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = os.environ.get("FRAMEWORK_RELEASES")
_LONGEST_S = 240


def known(framework: str, *names: str) -> list[ParameterSet]:
    """Parameters of a test, one for each release."""
    return [pytest.param(name, marks=() if _is_there(framework, name) else (_MISSING,)) for name in names]


def ask(framework: str, release: str, cases: Sequence[Mapping[str, Any]], probe: str | None = None) -> list[Any]:
    """What a probe, ``<framework>_probe.py`` unless named, answers to each case."""
    assert FOLDER is not None, "FRAMEWORK_RELEASES is not set"
    packages = Path(FOLDER) / framework / release
    assert packages.is_dir(), f"{packages} is missing: see .ci/run"
    answers = _asked(probe or framework, list(cases), [str(packages)])
    assert isinstance(answers, list)
    return answers


def ask_installed(probe: str, questions: Any, *packages: str) -> Any:
    """What ``<probe>_probe.py`` answers with these packages of the extra ``frameworks``."""
    missing = [name for name in missing_packages() if name.partition("==")[0] in packages]
    if missing:
        reason = f"pip install '.[frameworks]' brings what is missing: {', '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return _asked(probe, questions, [])


def _asked(probe: str, questions: Any, packages: list[str]) -> Any:
    with TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "cases.json", Path(folder) / "answers.json"
        asked.write_text(json.dumps(questions), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(HERE / f"{probe}_probe.py"), str(asked), str(answered)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([*packages, str(ROOT)]), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(answered.read_text(encoding="utf-8"))


def _is_there(framework: str, release: str) -> bool:
    if os.environ.get("CI") == "true":
        return True
    return FOLDER is not None and (Path(FOLDER) / framework / release).is_dir()


_MISSING = pytest.mark.skip(reason="$FRAMEWORK_RELEASES has no such release: see .ci/run")
