"""Asks Accelerate about its files. Runs in a process of its own: ``accelerate_launch_probe.py CASES ANSWERS``.

Each file goes the way of ``accelerate launch --config_file``: its parser, its checks, the environment that it sets; in
that environment ``ParallelismConfig`` and the FSDP plugin are made as in a script, and the mesh is held against an
accelerator with so many processes.

What a CPU lacks is put aside, no check with it: the packages of 8-bit products, and Transformers, which the handler of
tensor parallelism asks for.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

from accelerate import parallelism_config
from accelerate.commands import launch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils import launch as of_launch
from torch.distributed.fsdp import CPUOffloadPolicy


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """What is refused, or the environment and what Accelerate makes in it."""
    before = dict(os.environ)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "accelerate.yaml"
        path.write_text(case["text"], encoding="utf-8")
        given = ["--config_file", str(path), "--main_process_port", "0", "--main_process_ip", "localhost"]
        try:
            parser = launch.launch_command_parser()
            args, _, _ = launch._validate_launch_command(parser.parse_args([*given, "script.py", *case["arguments"]]))
            environment = of_launch.prepare_multi_gpu_env(args)
            os.environ.update(environment)
            return {
                "refused": None,
                "environment": environment,
                "script": args.training_script_args,
                "mesh": mesh(case),
                "fsdp": fsdp() if environment.get("ACCELERATE_USE_FSDP") else None,
            }
        except (Exception, SystemExit) as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        finally:
            os.environ.clear()
            os.environ.update(before)


def mesh(case: dict[str, Any]) -> dict[str, int] | None:
    if "ACCELERATE_USE_PARALLELISM_CONFIG" not in os.environ:
        return None
    sharded = bool(os.environ.get("ACCELERATE_USE_FSDP"))
    config = parallelism_config.ParallelismConfig()
    config._validate_accelerator(
        SimpleNamespace(
            num_processes=case["world"],
            distributed_type=DistributedType.FSDP if sharded else DistributedType.MULTI_GPU,
            multi_device=not sharded,
            is_fsdp2=sharded,
            is_main_process=False,
        )
    )
    found: dict[str, int] = config._sizes
    return found


def fsdp() -> dict[str, Any]:
    plugin = FullyShardedDataParallelPlugin()
    plugin.set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"].replace("no", "fp32"))
    return {
        "version": plugin.fsdp_version,
        "reshard_after_forward": plugin.reshard_after_forward,
        "activation_checkpointing": plugin.activation_checkpointing,
        "offloads": isinstance(plugin.cpu_offload, CPUOffloadPolicy),
        "reduces_in": str(plugin.mixed_precision_policy.reduce_dtype).removeprefix("torch."),
    }


def main() -> None:
    parallelism_config.TorchTensorParallelConfig = mock.Mock()
    of_launch.is_fp8_available = lambda: True
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps([answer(case) for case in asked]), encoding="utf-8")


if __name__ == "__main__":
    main()
