"""The loop: a few steps of a plan, each timed by the slowest rank."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.parallel import loss_parallel

from planner.profiling.probe.can import notes
from planner.profiling.probe.facts import cpu_name
from planner.profiling.probe.job import ProbeJob
from planner.profiling.probe.lines import Lines
from planner.profiling.probe.trainer.building import build, computes_in
from planner.profiling.probe.trainer.context import positions_of
from planner.profiling.probe.trainer.data_parallel import by_fsdp
from planner.profiling.probe.trainer.memory import Peaks
from planner.profiling.probe.trainer.mesh import Ranks, ranks_of
from planner.profiling.probe.trainer.optimizing import Tied, optimizer_of
from planner.profiling.probe.trainer.pipeline import passes_of

_VARIABLES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF")


def this_device() -> torch.device:
    """The device of this rank: a CUDA device where there is one, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def connect(timeout_s: float) -> torch.device:
    """Join the other ranks that torchrun has started; alone without it."""
    device = this_device()
    for name, usual in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, usual)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    return device


def environment(job: ProbeJob, device: torch.device) -> dict[str, Any]:
    """What figures depend on beside the plan."""
    cuda = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "backend": dist.get_backend(),
        "device": torch.cuda.get_device_name(device) if cuda else cpu_name(torch.get_num_threads()),
        "host": platform.node(),
        "ranks": dist.get_world_size(),
        "threads_per_rank": torch.get_num_threads(),
        "layers": job.layers,
        "model": job.scenario.model.name,
        "notes": list(notes(job.scenario, job.plan)),
        **({"cuda": torch.version.cuda, "nccl": ".".join(map(str, torch.cuda.nccl.version()))} if cuda else {}),
        **{name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }


def train(job: ProbeJob, lines: Lines, *, steps: int, warm_up: int, beat: Callable[[], None]) -> list[float]:
    """Run the steps and say what they took. Process groups are there.

    Args:
        warm_up: steps before those that count, marked as such.
        beat: called whenever something is done.

    Returns:
        The mean loss of every step, over the whole batch; the same on all ranks.
    """
    device, rank = this_device(), dist.get_rank()
    if rank == 0:
        lines.say({"environment": environment(job, device)})
    peaks = Peaks(device)
    step = _Step(job, device)
    beat()
    peaks.begin()
    losses = []
    for number in range(1, warm_up + steps + 1):
        seconds, loss = step.timed()
        beat()
        losses.append(loss)
        if rank == 0:
            line = {
                "step": number,
                "step_time_s": seconds,
                "tokens_per_s": job.scenario.workload.tokens_per_step / seconds,
                "loss": loss,
            }
            lines.say(line | ({"warm_up": True} if number <= warm_up else {}))
        if number in (1, warm_up + steps):
            _tell_peaks(peaks, lines, rank)
            beat()
    if rank == 0:
        lines.say({"finished": True, "steps": warm_up + steps})
    return losses


def _tell_peaks(peaks: Peaks, lines: Lines, rank: int) -> None:
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, peaks.now())
    if rank == 0:
        lines.say({name: [of[name] for of in of_ranks] for name in of_ranks[0]})


class _Step:
    """A step that can be run again and again, on the same batch."""

    def __init__(self, job: ProbeJob, device: torch.device) -> None:
        self.job, self.device, plan = job, device, job.plan
        self.ranks = ranks_of(plan, device.type)
        self.built = build(job, self.ranks, device)
        self.passes = passes_of(self.built, plan, self.ranks, device)
        self.optimizer = optimizer_of(job, self.built, self.ranks)
        self.tied = Tied(plan, self.built, self.ranks, tied=job.scenario.model.tie_word_embeddings)
        self.tokens, self.targets = _batch(job, self.ranks, device)
        self.has_head = any(of.chunk.has_head for of in self.built)

    def timed(self) -> tuple[float, float]:
        """(seconds of the slowest rank, mean loss)."""
        dist.barrier()
        self._wait()
        begin = time.perf_counter()
        loss = self._run()
        self._wait()
        seconds = time.perf_counter() - begin
        # On the CPU where that is the device: gloo has no other.
        slowest = torch.tensor([seconds], dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        mean = torch.zeros(2, dtype=torch.float64, device=self.device)
        if loss is not None:
            mean[0], mean[1] = loss.double(), 1.0
        dist.all_reduce(mean)
        return float(slowest), float(mean[0] / mean[1])

    def _run(self) -> Tensor | None:
        with self._casts(), self._cut_loss():
            loss = self.passes(self.tokens, self.targets)
        self.tied.add_up()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _casts(self) -> AbstractContextManager[Any]:
        """Products in 16 bits of parameters in 32, where FSDP doesn't cast them itself."""
        if self.job.plan.precision != "bf16" or by_fsdp(self.job.plan):
            return nullcontext()
        return torch.autocast(self.device.type, dtype=computes_in(self.job))

    def _cut_loss(self) -> AbstractContextManager[Any]:
        return loss_parallel() if self.job.plan.tp > 1 else nullcontext()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _batch(job: ProbeJob, ranks: Ranks, device: torch.device) -> tuple[Tensor, Tensor]:
    """(tokens, targets) of this rank, ``[sequences, tokens]``: its replica's rows and its piece of each sequence.

    Drawn whole on every rank, on the CPU, so that equal seeds give equal batches.
    """
    plan, vocab = job.plan, job.scenario.model.vocab_size
    generator = torch.Generator().manual_seed(job.seed)
    whole = torch.randint(vocab, (plan.global_batch_size, plan.seq_len + 1), generator=generator)
    rows = plan.global_batch_size // plan.dp
    mine = whole[ranks.replica * rows : (ranks.replica + 1) * rows]
    positions = positions_of(plan, ranks.piece, torch.device("cpu"))
    return mine[:, positions].to(device), mine[:, positions + 1].to(device)
