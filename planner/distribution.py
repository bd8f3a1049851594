"""The start-up check that the packages we import are ours.

Other distributions own top-level names such as ``api`` and ``db`` too. A folder of that name next to the script, or
another distribution earlier on the path, shadows ours; one installed into the same environment overwrites our files,
and pip says nothing. Without this check the user sees an ``ImportError`` deep inside a command, or worse, none.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from costmodel.errors import PlannerError

DISTRIBUTION = "parallelism-planner"
PACKAGES = ("costmodel", "db", "planner", "api")

_ADVICE = f"install {DISTRIBUTION} into an environment of its own"


class ForeignPackage(PlannerError):
    """One of our import packages is missing, shadowed or overwritten by somebody else's."""


def check_distribution() -> None:
    """Raise ForeignPackage unless all four packages are those that came with this file.

    Looks packages up without importing them and reads one small text file, so every command can afford it.
    """
    home = Path(__file__).resolve().parent.parent
    recorded_sizes = _recorded_sizes(home)
    for package in PACKAGES:
        found = _origin(package)
        if found is None:
            raise ForeignPackage(f"package {package!r} is missing or has no __init__.py; {_ADVICE}")
        if found.parent.parent != home:
            raise ForeignPackage(f"package {package!r} comes from {found.parent}, not from {home}; {_ADVICE}")
        expected_size = recorded_sizes.get(f"{package}/__init__.py")
        if expected_size is not None and found.stat().st_size != expected_size:
            raise ForeignPackage(f"package {package!r} in {home} was overwritten by another distribution; {_ADVICE}")


def _origin(package: str) -> Path | None:
    """The ``__init__.py`` that importing the package runs or ran; None for no package or a namespace package."""
    loaded = sys.modules.get(package)
    spec = find_spec(package) if loaded is None else loaded.__spec__
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve()


def _recorded_sizes(home: Path) -> dict[str, int]:
    """Bytes of each package's ``__init__.py`` as pip recorded them; empty for a source checkout.

    pip overwrites another distribution's files but never corrects its RECORD (lines of ``path,hash,size``), so a
    difference shows who came last. Sizes, not hashes: four foreign files of exactly our lengths don't happen, and
    this way the check needs neither hashlib nor importlib.metadata, whose imports cost more than all the rest.
    """
    sizes: dict[str, int] = {}
    wanted = {f"{package}/__init__.py" for package in PACKAGES}
    for record in home.glob(f"{DISTRIBUTION.replace('-', '_')}-*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8").splitlines():
            path, _, rest = line.partition(",")
            size = rest.rpartition(",")[2]
            if path in wanted and size.isdecimal():
                sizes[path] = int(size)
    return sizes
