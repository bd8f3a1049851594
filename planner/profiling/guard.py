"""``python -m planner.profiling.guard FOLDER GRACE -- COMMAND...``: runs a command, and leaves nothing of it behind.

The guard stands between a worker and what it runs. It ends everything that the command started when the command ends,
when the worker dies (its end of stdin closes), and when the worker has not written to stdin for GRACE seconds, which is
what a frozen one doesn't. Whatever a descendant does, it stays the guard's, which adopts orphans (a subreaper, Linux).

The folder gets ``log.txt`` and, when the command has ended by itself, ``exit_code``; ``abandoned`` when the worker gave
no sign.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from planner.profiling.processes import descendants, end

_LOOK_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    """Run; returns the exit code of the command."""
    folder, grace = Path(arguments[0]), float(arguments[1])
    command = arguments[arguments.index("--") + 1 :]
    # Ctrl-C on a terminal means the worker, which ends the guard by closing its stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    with (folder / "log.txt").open("ab") as log:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        except OSError as error:
            log.write(f"{command[0]}: {error.strerror}\n".encode())
            return _leave(folder, 127)
    why = _wait(child, grace)
    code = child.poll()
    end(lambda: descendants(os.getpid()))
    _reap()
    if why == "abandoned":
        (folder / why).touch()
    if why != "ended" or code is None:
        # It did not end by itself: whoever looks finds it gone.
        return 1
    return _leave(folder, code if code >= 0 else 128 - code)


def _wait(child: subprocess.Popen[bytes], grace: float) -> Literal["ended", "unwanted", "abandoned"]:
    """Until the command ends by itself, or is not wanted any more."""
    heard = time.monotonic()
    while child.poll() is None:
        ready, _, _ = select.select([0], [], [], _LOOK_S)
        if ready:
            if not os.read(0, 4096):
                return "unwanted"
            heard = time.monotonic()
        if time.monotonic() - heard > grace:
            return "abandoned"
    return "ended"


def _adopt_orphans() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _leave(folder: Path, code: int) -> int:
    """Write the exit code, whole or not at all."""
    staged = folder / "exit_code.new"
    staged.write_text(str(code), encoding="ascii")
    os.replace(staged, folder / "exit_code")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
