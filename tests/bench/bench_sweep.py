"""How long a scaling curve takes: 32 device counts for one model and cluster, in one process. Run it with `make bench`:

    python -m tests.bench.bench_sweep

The first point of a process also loads the solver; it is told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

from costmodel.errors import InvalidInput
from planner.cli.asking_here import answers_here
from planner.question import Question
from planner.sweeping import Sweep

SWEEPS = (
    ("llama-3.1-70b", "dgx-h100", range(64, 2049, 64), 1024, 8192),
    ("llama-3.1-405b", "dgx-h100", range(512, 16385, 512), 2048, 8192),
    ("mixtral-8x22b", "dgx-h100", range(64, 2049, 64), 1024, 8192),
)


def questions(model: str, cluster: str, devices: Iterable[int], batch: int, seq_len: int) -> Sweep:
    """A sweep over devices, of the one best plan at each."""
    question = Question(
        model=model, cluster=cluster, devices=1, global_batch_size=batch, seq_len=seq_len, top=1, max_seconds=60.0
    )
    return Sweep(question=question, devices=tuple(devices), global_batch_sizes=(batch,), seq_lens=(seq_len,))


def main() -> None:
    """Wall and processor seconds of each sweep."""
    print(
        f"{'model':<16}{'cluster':<12}{'points':>8}{'proven':>8}{'first s':>9}{'seconds':>9}{'CPU s':>8}{'slowest':>9}"
    )
    for sweep in SWEEPS:
        asked = questions(*sweep)
        moments, busy, proven = [time.perf_counter()], time.process_time(), 0
        for answer in answers_here(asked.questions(), store=False):
            moments.append(time.perf_counter())
            proven += not isinstance(answer, InvalidInput) and answer["status"] in ("optimal", "infeasible")
        each = [after - before for before, after in pairwise(moments)]
        print(f"{sweep[0]:<16}{sweep[1]:<12}{len(asked):>8}{proven:>8}{each[0]:>9.2f}", end="")
        print(f"{sum(each):>9.2f}{time.process_time() - busy:>8.2f}{max(each):>9.2f}")


if __name__ == "__main__":
    main()
