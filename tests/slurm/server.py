"""A real Slurm of one node, which the tests start and stop themselves, from Debian's packages slurm-wlm and munge.

It has its own munge, ports and folder, and leaves what the machine has of these alone. Where Slurm is not installed the
tests that need it are skipped on a user's machine, and fail in CI.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_START_SECONDS = 60
_JOB_SECONDS = 120
# However the tests end, also by kill -9: their end of the pipe closes, and the daemons and their folder go.
_UNTIL_STDIN_ENDS = """
home=$1
munged --foreground --force --socket "$home/munge.socket" --key-file "$home/munge.key" --pid-file "$home/munged.pid" \
    --log-file "$home/munged.log" --seed-file "$home/munged.seed" & munged=$!
until [ -S "$home/munge.socket" ]; do sleep 0.05; done
slurmctld -D -f "$home/slurm.conf" & slurmctld=$!
slurmd -D -f "$home/slurm.conf" & slurmd=$!
read -r _
SLURM_CONF=$home/slurm.conf scancel --full --signal=KILL --partition=real
SLURM_CONF=$home/slurm.conf scancel --partition=real
kill $slurmd $slurmctld
wait $slurmd $slurmctld
# One that a test started again is no child of ours.
if [ -s "$home/slurmctld.pid" ]; then
    again=$(cat "$home/slurmctld.pid")
    kill $again
    while kill -0 $again; do sleep 0.05; done
fi
kill $munged
wait $munged
rm -rf "$home"/*
"""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A cluster that runs.

    Attributes:
        home: its folder, with its logs.
    """

    home: Path

    def run(
        self, *command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, whatever comes of it."""
        variables = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.home / "slurm.conf"), **(environment or {})}
        return subprocess.run(
            command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=_JOB_SECONDS
        )

    def submit(
        self, script: Path, *arguments: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> str:
        """Submit a script from its own folder; the job's id."""
        command = ("sbatch", "--parsable", *options, script.name, *arguments)
        done = self.run(*command, cwd=script.parent, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job_id: str) -> dict[str, str]:
        """What Slurm says of a job."""
        done = self.run("scontrol", "--oneliner", "show", "job", job_id)
        assert done.returncode == 0, done.stderr
        return dict(re.findall(r"(\S+?)=(.*?) *(?= \S+=|$)", done.stdout.strip()))

    def wait_for(self, job_id: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of some states."""
        deadline = time.monotonic() + _JOB_SECONDS
        while True:
            found = self.job(job_id)
            if found["JobState"] in states:
                return found
            if time.monotonic() > deadline:
                pytest.fail(f"job {job_id} is not {' or '.join(states)}: {found}\n{self.logs()}")
            time.sleep(0.1)

    def start_controller(self) -> None:
        """Start slurmctld again, after a test has killed it; it ends with the others."""
        done = self.run("slurmctld", "-f", self.home / "slurm.conf")
        assert done.returncode == 0, done.stderr

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        files = sorted(self.home.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """A cluster for as long as the block runs."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        if os.environ.get("CI"):
            pytest.fail(f"Slurm is not installed: no {', '.join(missing)}; apt-get install slurm-wlm munge")
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)}")
    home = Path(tempfile.mkdtemp(prefix="planner-slurm-"))
    try:
        with _started(home) as slurm:
            yield slurm
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _started(home: Path) -> Iterator[Slurm]:
    for folder in ("state", "spool"):
        (home / folder).mkdir()
    key = home / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    shutil.copy(HERE / "gres.conf", home)
    first, second = _free_ports()
    host = socket.gethostname().partition(".")[0]
    values = {"DIR": home, "HOST": host, "USER": getpass.getuser(), "CTLD_PORT": first, "SLURMD_PORT": second}
    text = (HERE / "slurm.conf.in").read_text(encoding="utf-8")
    (home / "slurm.conf").write_text(re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), text), encoding="utf-8")
    with (home / "daemons.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_STDIN_ENDS, "sh", home],
            env={**os.environ, "PATH": _PATH},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        slurm = Slurm(home=home)
        try:
            _wait_for(slurm, process)
            yield slurm
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=_START_SECONDS)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def _wait_for(slurm: Slurm, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while "idle" not in slurm.run("sinfo", "--noheader", "--partition=real", "--format=%t").stdout:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"Slurm does not start:\n{slurm.logs()}")
        time.sleep(0.1)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A cluster of this module's own."""
    with running_slurm() as started:
        yield started
