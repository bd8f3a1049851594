"""Asks MaxText itself about configuration files. Runs in a process of its own: ``maxtext_probe.py CASES ANSWERS``.

Its configuration is checked by ``configs/types.py``, which asks JAX for the devices and MaxText's utilities for the
slices, and nothing else of either: others stand in. File over base.yml, as ``pyconfig.initialize`` lays them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml

WORLD = SimpleNamespace(devices=1, slices=1)
OF_A_HOST = 8


class Anything(ModuleType):
    """A module with every name, for annotations that nobody looks at."""

    def __getattr__(self, name: str) -> Any:
        return object


def stand_in(name: str, module: ModuleType | None = None, **held: Any) -> ModuleType:
    made = module or ModuleType(name)
    vars(made).update(held)
    sys.modules[name] = made
    return made


jax = stand_in(
    "jax",
    devices=lambda: [None] * WORLD.devices,
    local_device_count=lambda: min(OF_A_HOST, WORLD.devices),
    distributed=SimpleNamespace(is_initialized=lambda: False),
    numpy=stand_in("jax.numpy", Anything("jax.numpy")),
)
stand_in("flax", struct=stand_in("flax.struct", dataclass=lambda made: made))


def quiet(*_: Any, **__: Any) -> None:
    """For what MaxText logs."""


utilities = importlib.import_module("maxtext.utils")
for utility, held in {
    "gcs_utils": {"add_trailing_slash": lambda path: path},
    "max_logging": {"log": quiet, "info": quiet, "warning": quiet, "error": quiet},
    "max_utils": {"get_num_slices": lambda _: WORLD.slices},
    "elastic_utils": {},
}.items():
    setattr(utilities, utility, stand_in(f"maxtext.utils.{utility}", **held))

types = importlib.import_module("maxtext.configs.types")
BASE = yaml.safe_load((Path(types.__file__).parent / "base.yml").read_text(encoding="utf-8"))


def answer(case: dict[str, Any]) -> dict[str, Any]:
    WORLD.devices, WORLD.slices = case["devices"], case["slices"]
    os.environ.pop("XLA_FLAGS", None)
    given = yaml.safe_load(case["text"])
    unknown = sorted(set(given) - set(types.MaxTextConfig.model_fields) - {"base_config"})
    together = {**BASE, **given, "run_name": "test"}
    together.pop("base_config", None)
    values = {name: None if str(value).lower() == "none" else value for name, value in together.items()}
    try:
        found = types.MaxTextConfig(**values)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:2000]}
    return {
        "refused": None,
        "unknown": unknown,
        "global_batch_size": found.global_batch_size_to_train_on,
        "mesh": dict(zip(found.mesh_axes, found.ici_parallelism, strict=True)),
        "layers": found.num_decoder_layers,
    }


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps([answer(case) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main()
