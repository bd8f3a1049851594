"""Starts ranks of the probe, as torchrun would, and makes sure that none outlives its test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

WORKER = "tests.planner.probe_worker"
PROBE = "planner.profiling.probe"
_ROOT = Path(__file__).parents[2]


@contextmanager
def started(module: str, arguments: Sequence[str], ranks: int) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of so many ranks on this machine."""
    usual = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            cwd=_ROOT,
            env=os.environ | usual | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in range(ranks)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                # With the ranks that it has forked.
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def ended(processes: Sequence[subprocess.Popen[str]], seconds: float) -> tuple[list[int], str]:
    """(exit codes, all that was printed)."""
    said = [process.communicate(timeout=seconds)[0] for process in processes]
    return [process.returncode for process in processes], "".join(said)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert isinstance(port, int)
        return port
