"""The start-up check: silent for our own packages, and one clear line for shadowed, missing or overwritten ones.

Each case runs in an interpreter of its own, on a copy of our packages, because the originals are already imported here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from planner.distribution import PACKAGES, check_distribution

ROOT = Path(__file__).resolve().parent.parent

RUN_THE_CHECK = """
import sys
sys.path[:0] = sys.argv[1:]
from planner.distribution import ForeignPackage, check_distribution
try:
    check_distribution()
except ForeignPackage as error:
    sys.exit(str(error))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that looks like an environment into which pip installed the wheel."""
    site = tmp_path / "site"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "catalog"))
    info = site / "parallelism_planner-0.1.0.dist-info"
    info.mkdir()
    lines = [f"{p}/__init__.py,sha256=xxxx,{(site / p / '__init__.py').stat().st_size}" for p in PACKAGES]
    (info / "RECORD").write_text("\n".join([*lines, "parallelism_planner-0.1.0.dist-info/RECORD,,"]) + "\n")
    return site


def complaint(*path: Path) -> str:
    """What the check says when the interpreter looks for packages in these folders first; empty when content."""
    # -I: neither the current folder nor PYTHONPATH may bring in the packages under test.
    command = [sys.executable, "-I", "-c", RUN_THE_CHECK, *map(str, path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in result.stderr, result.stderr
    assert (result.returncode == 0) == (result.stderr == ""), result.stderr
    return result.stderr.strip()


def make_package(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text('"""Somebody else\'s."""\n')


def test_the_packages_under_test_are_ours() -> None:
    check_distribution()


def test_an_installed_wheel_passes(site: Path) -> None:
    assert complaint(site) == ""


def test_a_source_checkout_has_no_record_and_passes(site: Path) -> None:
    shutil.rmtree(site / "parallelism_planner-0.1.0.dist-info")
    assert complaint(site) == ""


@pytest.mark.parametrize("name", ["db", "api"])
def test_a_shadowing_package_is_named_with_both_places(site: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    make_package(other, name)
    said = complaint(other, site)
    assert repr(name) in said
    assert str(other / name) in said
    assert str(site) in said
    assert "\n" not in said


def test_a_package_that_is_already_imported_is_the_one_judged(site: Path, tmp_path: Path) -> None:
    """Something that ran before us may have imported its own ``db`` and then changed the path."""
    other = tmp_path / "other"
    make_package(other, "db")
    script = f"import sys; sys.path.insert(0, {str(other)!r}); import db; sys.path.pop(0)\n" + RUN_THE_CHECK
    command = [sys.executable, "-I", "-c", script, str(site)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert str(other / "db") in result.stderr


def test_an_overwritten_package_is_noticed(site: Path) -> None:
    (site / "db" / "__init__.py").write_text("from .core import Database\n")
    said = complaint(site)
    assert "'db'" in said
    assert "overwritten" in said


@pytest.mark.parametrize("leave_folder", [True, False], ids=["namespace", "absent"])
def test_a_package_without_its_init_is_noticed(site: Path, leave_folder: bool) -> None:
    """What uninstalling the distribution that had overwritten ours leaves behind.

    Only the name is asserted: where this checkout is installed editable, its finder serves the missing package.
    """
    (site / "api" / "__init__.py").unlink()
    if not leave_folder:
        shutil.rmtree(site / "api")
    said = complaint(site)
    assert "'api'" in said


def test_it_is_cheap() -> None:
    """Best of several, since a busy machine is not what is measured."""

    def seconds() -> float:
        start = perf_counter()
        check_distribution()
        return perf_counter() - start

    assert min(seconds() for _ in range(20)) < 0.002
