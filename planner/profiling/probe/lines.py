"""What the probe says while it runs: JSON lines in ``metrics.jsonl`` of its folder, one whole line at a time.

{"environment": {...}}
{"step": 3, "step_time_s": 0.41, "tokens_per_s": 20000.0, "loss": 7.1, "warm_up": true}
{"peak_allocated_bytes": [...], "peak_reserved_bytes": [...]}          on accelerators, a number for each rank
{"peak_rss_bytes": [...], "rss_before_model_bytes": [...]}             on CPUs
{"failed": "out_of_memory" | "crash" | "refused", "rank": 0, "detail": "..."}
{"finished": true, "steps": 12}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


class Lines:
    """The file, which every rank may append to."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / NAME
        # Two ranks may run out of memory at once: who makes this file may say so.
        self._claim = Path(folder) / ".failed"

    def begin(self) -> None:
        """Make the folder, and the file empty."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._claim.unlink(missing_ok=True)
        self.path.write_text("", encoding="utf-8")

    def say(self, line: Mapping[str, Any]) -> None:
        """Append a line, in one write, so that ranks don't get into each other's."""
        text = json.dumps(line, allow_nan=False) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def fail(self, why: str, rank: int, detail: str) -> None:
        """Say why it ends, unless a rank has said so before: what breaks then breaks because of that one."""
        try:
            os.close(os.open(self._claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return
        self.say({"failed": why, "rank": rank, "detail": detail})
