"""Ranks that train job after job, so that torch is imported once for all of them.

``MASTER_PORT=.. python -m tests.planner.probe_worker FOLDER RANKS``: of every ``NAME.job.json`` in the folder, by name,
the losses go to ``NAME.losses.json``, the metrics to ``NAME/metrics.jsonl``, and of jobs for one device the parameters
to ``NAME.parameters.json``. What fails is told in ``NAME.failed``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from planner.profiling.probe.job import ProbeJob, read_job
from planner.profiling.probe.lines import Lines
from planner.profiling.probe.trainer.building import build
from planner.profiling.probe.trainer.mesh import ranks_of
from planner.profiling.probe.trainer.training import train

_TIMEOUT = timedelta(seconds=60)


def main(folder: Path, ranks: int) -> int:
    """Fork the ranks, which is safe as long as torch has been imported and no more; 0 where all of them got through."""
    left = set()
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            _rank(folder, rank, ranks)
            os._exit(0)
        left.add(process)
    while left:
        process, status = os.wait()
        left.remove(process)
        if status:
            # The others wait for it.
            for other in left:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _rank(folder: Path, rank: int, ranks: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), ranks, rank == 0, _TIMEOUT)
    for path in sorted(folder.glob("*.job.json")):
        job, name = read_job(str(path)).at_depth(), path.name.removesuffix(".job.json")
        if rank >= job.plan.devices_used:
            continue
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(name, store),
            rank=rank,
            world_size=job.plan.devices_used,
            timeout=_TIMEOUT,
        )
        lines = Lines(str(folder / name))
        if rank == 0:
            lines.begin()
        dist.barrier()
        try:
            losses = train(job, lines, steps=2, warm_up=1, beat=lambda: None)
        except Exception:
            text = "".join(traceback.format_exc())
            (folder / f"{name}.failed").write_text(f"rank {rank}: {text}")
            sys.stderr.write(f"{name} rank {rank}: {text}\n")
            sys.stderr.flush()
            os._exit(1)
        if rank == 0:
            (folder / f"{name}.losses.json").write_text(json.dumps(losses))
        if job.plan.devices_used == 1:
            (folder / f"{name}.parameters.json").write_text(json.dumps(_parameters(job)))
        dist.destroy_process_group()


def _parameters(job: ProbeJob) -> int:
    """Of the whole model, tied ones once."""
    (built,) = build(job, ranks_of(job.plan, "cpu"), torch.device("cpu"))
    return sum(parameter.numel() for parameter in built.part.parameters())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
