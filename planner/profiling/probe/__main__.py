"""``torchrun ... -m planner.profiling.probe --job job.json --out DIR``: run a plan for a few steps.

With ``--measure`` in place of the job it measures kernels and links.

Exit codes: 0 finished, 1 crashed or hung, 2 bad input or a plan that the probe can't run, 3 out of memory. torchrun has
exit codes of its own: whoever watches reads ``metrics.jsonl``.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from costmodel.errors import InvalidInput
from planner.profiling.probe.can import check_can
from planner.profiling.probe.facts import RUN
from planner.profiling.probe.job import ProbeJob, read_job
from planner.profiling.probe.lines import Lines
from planner.profiling.probe.run_row import run_text
from planner.profiling.probe.watchdog import Watchdog

CRASHED, REFUSED, OUT_OF_MEMORY = 1, 2, 3
_LONGEST = 4000
# What allocators say: CUDA's has a class of its own, that of CPUs has words.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory", "bad_alloc")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and say how it went; returns the exit code."""
    asked = _parser().parse_args(arguments)
    lines, rank = Lines(asked.out), int(os.environ.get("RANK", "0"))
    if rank == 0:
        lines.begin()
    try:
        return _run(asked, lines, rank)
    except InvalidInput as error:
        if rank == 0:
            sys.stderr.write(f"{error}\n")
            lines.fail("refused", rank, str(error))
        return REFUSED
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        short = _is_short_of_memory(error)
        detail = "".join(traceback.format_exception(error))[-_LONGEST:]
        lines.fail("out_of_memory" if short else "crash", rank, detail)
        sys.stderr.write(detail)
        return OUT_OF_MEMORY if short else CRASHED


def _run(asked: argparse.Namespace, lines: Lines, rank: int) -> int:
    job = None if asked.measure else _job(asked)
    # Of names that its next releases change, which its older ones don't have.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    # Torch takes seconds to import, and what can't run is told before.
    from planner.profiling.probe.trainer.memory import limit_memory
    from planner.profiling.probe.trainer.training import connect, train

    device = connect(asked.timeout_s)
    why = f"nothing was done for {asked.timeout_s:g} s"
    watchdog = Watchdog(asked.timeout_s, lambda: lines.fail("crash", rank, why), CRASHED)
    if asked.memory_bytes is not None:
        limit_memory(asked.memory_bytes)
    if job is None:
        from planner.profiling.probe.measure.measuring import measure

        found = measure(device, seconds_each=asked.seconds_each, beat=watchdog.beat)
        watchdog.rest()
        if rank == 0:
            for name, text in found.files().items():
                (Path(asked.out) / name).write_text(text, encoding="utf-8")
            lines.say({"finished": True, "measured": sorted(found.files())})
        return 0
    train(job, lines, steps=asked.steps, warm_up=asked.warm_up, beat=watchdog.beat)
    watchdog.rest()
    row = run_text(job, lines.path) if rank == 0 else None
    if row is not None:
        (Path(asked.out) / RUN).write_text(row, encoding="utf-8")
    return 0


def _job(asked: argparse.Namespace) -> ProbeJob:
    """The job at its depth.

    Raises:
        InvalidInput: none is given, it is unusable, the probe can't run it, or there are other devices than it needs.
    """
    if asked.job is None:
        raise InvalidInput("job", None, "name a file with --job, or measure kernels and links with --measure")
    job = read_job(asked.job).at_depth()
    check_can(job.scenario, job.plan)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks != job.plan.devices_used:
        expected = f"the plan uses {job.plan.devices_used} devices: start as many (torchrun --nproc-per-node)"
        raise InvalidInput("ranks", ranks, expected)
    return job


def _is_short_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="planner.profiling.probe", description=__doc__)
    parser.add_argument("--job", help="the scenario and the plan to run, JSON")
    parser.add_argument("--out", required=True, help="folder for what is measured; metrics.jsonl in it begins anew")
    parser.add_argument("--steps", type=_positive, default=10, help="steps that count")
    parser.add_argument("--warm-up", type=_not_negative, default=2, help="steps before them")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="longest that a step or a collective may take")
    parser.add_argument("--memory-bytes", type=_positive, help="memory of a rank on a CPU beside its libraries")
    parser.add_argument("--measure", action="store_true", help="measure kernels and links instead")
    parser.add_argument("--seconds-each", type=float, default=0.05, help="how long one size of one of them is repeated")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not through the interpreter's end: process groups would wait there for ranks that are gone.
    os._exit(code)
