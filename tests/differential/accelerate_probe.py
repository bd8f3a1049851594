"""Asks Accelerate itself about plans. Runs in a process of its own: ``accelerate_probe.py CASES.json VERDICTS.json``.

Each plan becomes a ``ParallelismConfig``, which is then validated against an accelerator with the plan's processes, as
``Accelerator`` does when it starts. The handler of tensor parallelism asks for Transformers and checks nothing of the
plan, so a placeholder stands in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType, TorchContextParallelConfig

Case = dict[str, Any]

STRATEGIES = {"all_gather": "allgather", "p2p": "alltoall"}


def verdict(case: Case) -> dict[str, Any]:
    """Whether the configuration is refused when it is made, or when the accelerator starts with it."""
    ulysses = case["cp"] > 1 and case["cp_comm_type"] == "a2a"
    ring = case["cp"] > 1 and not ulysses
    kind = DistributedType.MULTI_GPU if case["zero_stage"] == 0 else DistributedType.FSDP
    accelerator = SimpleNamespace(
        num_processes=case["world"],
        distributed_type=DistributedType.DEEPSPEED if ulysses else kind,
        multi_device=case["zero_stage"] == 0 and not ulysses,
        is_fsdp2=case["zero_stage"] > 0 and not ulysses,
        is_main_process=False,
    )
    step = "configuration"
    try:
        config = ParallelismConfig(
            dp_replicate_size=case["dp_replicate"],
            dp_shard_size=case["dp_shard"],
            tp_size=case["tp"],
            cp_size=case["cp"] if ring else 1,
            sp_size=case["cp"] if ulysses else 1,
            tp_handler=object() if case["tp"] > 1 else None,
            cp_handler=TorchContextParallelConfig(STRATEGIES[case["cp_comm_type"]]) if ring else None,
        )
        step = "start"
        config._validate_accelerator(accelerator)
    except ValueError as error:
        return {"refused_by": step, "why": str(error)}
    return {"refused_by": None}


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = {"plans": [verdict(case) for case in asked["plans"]]}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
