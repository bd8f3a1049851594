"""Stands in for a training program: ``trainer.py STARTS RULES KEY STEPS AXIS=VALUE...`` prints JSON lines.

STARTS gets a line with the key and the process for each start. RULES says what comes of which plans.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

_OK = "ok:0.65"
# Of all starts but the first.
_LATER = "later:"


def main(starts: str, rules: str, key: str, steps: str, *words: str) -> int:
    """Do what the first rule says whose words all are the plan's."""
    note(starts, key, os.getpid())
    found = json.loads(Path(rules).read_text(encoding="utf-8"))
    said = next((what for needed, what in found if set(needed) <= set(words)), _OK)
    if said.startswith(_LATER):
        said = said.removeprefix(_LATER) if len(Path(starts).read_bytes().splitlines()) > 1 else _OK
    what, _, value = said.partition(":")
    seconds = float(value) if what == "ok" else 0.65
    tell({"environment": {"trainer": "fake"}, "step": 0, "step_time_s": seconds})
    if what == "out_of_memory":
        sys.stdout.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
        return 1
    if what == "crash":
        raise RuntimeError("the loss is not a number")
    if what == "hang":
        time.sleep(3600)
    if what == "daemon":
        # Away from its parent and its session, as some launchers do.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        note(starts, key, child.pid)
        time.sleep(3600)
    if what == "until":
        while not Path(value).exists():
            time.sleep(0.02)
    for step in range(1, int(steps)):
        tell({"step": step, "step_time_s": seconds})
    tell({"peak_allocated_bytes": [1 << 30, 2 << 30], "finished": True})
    return 0


def note(starts: str, key: str, pid: int) -> None:
    """A line that comes whole, whoever writes beside us."""
    with open(starts, "ab", buffering=0) as file:
        file.write(f"{key} {pid}\n".encode())


def tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
