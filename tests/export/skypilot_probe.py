"""SkyPilot's schemas of a task and of its resources, and the names of accelerators that it knows: of the installed one.

Run by itself (``releases.py``). Its packages are entered without their __init__, which needs all clouds' clients.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


def known() -> dict[str, Any]:
    """All that the tests ask of it."""
    spec = find_spec("sky")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    for name in ("sky", "sky.skylet", "sky.utils", "sky.setup_files"):
        module = ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    sys.modules["sky"].__version__ = "0"  # type: ignore[attr-defined]
    # What these list are values of settings that no task here has: when to stop, and defaults of an installation.
    for name in ("sky.skylet.autostop_lib", "sky.server", "sky.server.daemons"):
        sys.modules[name] = MagicMock()
    from sky.utils import gpu_names, schemas  # type: ignore[import-not-found]

    # The rest of the common names stands in a module that reads catalogs from the network.
    text = (root / "catalog/__init__.py").read_text(encoding="utf-8")
    common = text.partition("def get_common_gpus()")[2].partition("def ")[0]
    return {
        "task": schemas.get_task_schema(),
        "resources": schemas.get_resources_schema(),
        "accelerators": [*gpu_names.CANONICAL_GPU_NAMES, *common.split("'")[1::2]],
    }


def main(asked: Path, answered: Path) -> None:
    """Answer every case with the same."""
    cases = json.loads(asked.read_text(encoding="utf-8"))
    answered.write_text(json.dumps([known()] * len(cases), default=lambda _: ["none"]), encoding="utf-8")


main(Path(sys.argv[1]), Path(sys.argv[2]))
