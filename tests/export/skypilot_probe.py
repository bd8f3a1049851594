"""Prints SkyPilot's schemas of a task and of its resources, and the names of accelerators that it knows.

Run by itself, with the folder of an installed skypilot: its packages are entered without their __init__, which needs
all clouds' clients.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock


def main(root: Path) -> None:
    """Print them as JSON."""
    sys.path.insert(0, str(root))
    for name in ("sky", "sky.skylet", "sky.utils", "sky.setup_files"):
        module = ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = module
    sys.modules["sky"].__version__ = "0"  # type: ignore[attr-defined]
    # Only lists the values of settings that no task here has.
    sys.modules["sky.skylet.autostop_lib"] = MagicMock()
    # What the defaults of a whole installation may be, which a task's own file has nothing of.
    sys.modules["sky.server"] = sys.modules["sky.server.daemons"] = MagicMock()
    from sky.utils import gpu_names, schemas  # type: ignore[import-not-found]

    # The rest of the common names stands in a module that reads catalogs from the network.
    text = (root / "sky/catalog/__init__.py").read_text(encoding="utf-8")
    common = text.partition("def get_common_gpus()")[2].partition("def ")[0]
    known = {
        "task": schemas.get_task_schema(),
        "resources": schemas.get_resources_schema(),
        "accelerators": [*gpu_names.CANONICAL_GPU_NAMES, *common.split("'")[1::2]],
    }
    print(json.dumps(known, default=lambda _: ["none"]))  # noqa: T201


main(Path(sys.argv[1]))
