"""Asks torchtitan 0.3 about recipes. Runs in a process of its own: ``torchtitan_recipe_probe.py CASES ANSWERS``.

Each recipe is found by ``--module`` and ``--config``, as on a cluster, by torchtitan's own ``ConfigManager``; where a
case asks for it, torchtitan's ``Trainer`` is then constructed from it up to the parallelised model, in a world of fake
process groups (tests/differential/torchtitan_probe.py says what a CPU lacks). Flavours are built on the meta device,
and their parameters counted.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))

import torch
import torchtitan_probe

# Kernels of a dispatcher that need an accelerator.
sys.modules["deep_ep"] = torchtitan_probe.Placeholder("deep_ep")

from torchtitan import trainer  # noqa: E402
from torchtitan.components import metrics  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402

Case = dict[str, Any]

# The default, spmd_types, needs a newer FSDP than that of the PyTorch release.
DRY_RUN = ["--comm.mode", "fake_backend", "--parallelism.spmd_backend", "full_dtensor"]
SECTIONS = ("training", "parallelism", "compile")


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What torchtitan makes of the arguments."""
    config = ConfigManager().parse_args(arguments)
    found = {section: getattr(config, section) for section in SECTIONS}
    return {name: {key: getattr(value, key) for key in value.__dataclass_fields__} for name, value in found.items()} | {
        "activation_checkpoint": type(config.activation_checkpoint).__qualname__,
        "flavour": config.model_spec.flavor,
        "optimizers": [group.optimizer_name for group in config.optimizer.param_groups],
    }


def verdict(case: Case) -> dict[str, Any]:
    """What is refused, or what torchtitan read."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in case["files"].items():
                Path(folder, name).write_text(text, encoding="utf-8")
            sys.path.insert(0, folder)
            os.chdir(folder)  # where it leaves its logs
            found = parsed(case["arguments"])
            if case.get("world"):
                os.environ["NGPU"] = os.environ["WORLD_SIZE"] = str(case["world"])
                try:
                    trainer.Trainer(ConfigManager().parse_args([*case["arguments"], *DRY_RUN]))
                except torchtitan_probe.Reached:
                    return {"refused": None, "read": found}
                raise RuntimeError("the constructor ended before the step that was to stop it")
            return {"refused": None, "read": found}
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def parameters(flavour: dict[str, Any]) -> int:
    """Of a flavour."""
    module = importlib.import_module(f"torchtitan.models.{flavour['module']}")
    with torch.device("meta"):
        model = module.model_registry(flavour["flavour"], **flavour["arguments"]).model.build()
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    logging.disable(logging.CRITICAL)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    metrics.build_device_memory_monitor = lambda: mock.Mock(device_name="cpu")
    torch.nn.Module.to_empty = mock.Mock(side_effect=torchtitan_probe.Reached)
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # A process for every plan, as caches of PyTorch outlive the process groups that they hold.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as workers:
        answers = {
            "recipes": workers.map(verdict, asked.get("recipes", ()), chunksize=1),
            "parameters": workers.map(parameters, asked.get("flavours", ()), chunksize=1),
        }
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
