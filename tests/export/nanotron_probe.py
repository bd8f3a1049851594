"""Asks nanotron itself about configuration files. Runs in a process of its own: ``nanotron_probe.py CASES ANSWERS``.

Its dataclasses import the engine, the sampler and the logger for their types alone, which want the whole of nanotron:
others stand in.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml


class PipelineEngine:
    """Stands in."""


class AllForwardAllBackward(PipelineEngine):
    """Stands in."""


class OneForwardOneBackward(PipelineEngine):
    """Stands in."""


class Mode(enum.Enum):
    """Stands in, with the names of the real one."""

    ALL_REDUCE = enum.auto()
    REDUCE_SCATTER = enum.auto()


class Sampler(enum.Enum):
    """Stands in."""

    GREEDY = enum.auto()


def stand_in(name: str, **held: Any) -> None:
    module = ModuleType(name)
    vars(module).update(held)
    sys.modules[name] = module


for parent in ("parallel", "parallel.pipeline_parallel", "parallel.tensor_parallel", "generation"):
    stand_in(f"nanotron.{parent}")
stand_in("nanotron.logging", get_logger=logging.getLogger)
stand_in(
    "nanotron.parallel.pipeline_parallel.engine",
    PipelineEngine=PipelineEngine,
    AllForwardAllBackwardPipelineEngine=AllForwardAllBackward,
    OneForwardOneBackwardPipelineEngine=OneForwardOneBackward,
)
stand_in("nanotron.parallel.tensor_parallel.nn", TensorParallelLinearMode=Mode)
stand_in("nanotron.generation.sampler", SamplerType=Sampler)

from nanotron.config import get_config_from_dict  # noqa: E402 - after what stands in


def joined(plan: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """Both files as one."""
    return {
        name: joined(plan.get(name, {}), rest.get(name, {}))
        if isinstance(plan.get(name, rest.get(name)), dict)
        else plan.get(name, rest.get(name))
        for name in {**plan, **rest}
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    try:
        config = get_config_from_dict(joined(yaml.safe_load(case["text"]), yaml.safe_load(case["rest"])))
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"refused": None, "global_batch_size": config.global_batch_size, "config": config.as_dict()}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps([answer(case) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main()
