"""Scripts that run on our sources in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own that runs a script on our sources."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
