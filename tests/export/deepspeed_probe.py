"""Asks DeepSpeed itself about configuration files. Runs in a process of its own: ``deepspeed_probe.py CASES ANSWERS``.

Ranks are pretended: the configuration asks how many there are, and nothing else of them.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deepspeed.runtime import config as configuration
from deepspeed.runtime.utils import partition_balanced

try:
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config
except ImportError:
    validate_autoep_config = None


def answer(case: dict[str, Any]) -> Any:
    if "layers" in case:
        # Embedding, layers, norm and head, of which the layers count.
        weights = [0, *[1] * case["layers"], 0, 0]
        parts = partition_balanced(weights, case["stages"])
        return [sum(weights[start:stop]) for start, stop in pairwise(parts)]
    try:
        return read(case)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def read(case: dict[str, Any]) -> dict[str, Any]:
    world, tp, pp, cp = case["world"], case["tp"], case["pp"], case["cp"]
    configuration.dist = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda group=None: world)
    # With tensor parallelism or pipelines the engine brings a mesh of its own; Ulysses is read from the file.
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: world // (tp * pp * cp)) if tp * pp > 1 else None
    found = configuration.DeepSpeedConfig(json.loads(case["text"]), mpu=mpu)
    ep = 1
    if validate_autoep_config is not None:
        experts, zero = found.expert_parallel_config, found.zero_config
        ep = experts.autoep_size
        validate_autoep_config(
            experts,
            world,
            pp,
            tp,
            cp,
            zero_stage=int(zero.stage),
            zero_offload_optimizer=zero.offload_optimizer is not None,
            zero_offload_param=zero.offload_param is not None,
        )
    return {
        "refused": None,
        "batch": [found.train_batch_size, found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps],
        "zero": json.loads(found.zero_config.model_dump_json()),
        "tp": found.tensor_parallel_config.autotp_size,
        "ep": ep,
    }


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps([answer(case) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main()
