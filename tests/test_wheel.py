"""The wheel, as a user gets it: everything that belongs inside is there, and `planner suggest` answers from it.

The tests of the packages run on the source tree; a forgotten data file or a package that the build leaves out shows
only here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("costmodel", "db", "planner", "api")
BUILD_INPUTS = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither the source tree nor settings of the environment the tests run in."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PLANNER_", "VIRTUAL_ENV", "COV_"))
    }
    environment["PLANNER_DATABASE_URL"] = f"sqlite:///{cwd / 'planner.db'}"
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. Built from a copy: setuptools leaves folders behind, and packs what an older build left."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in BUILD_INPUTS:
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    result = run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", source, cwd=folder
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment that holds the wheel and borrows its dependencies from the one we run in."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    result = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    # A path in a .pth file comes after the environment's own packages, and the .pth files of that folder are not
    # read: our own editable install, which is one of them, can't stand in for the wheel.
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return folder


def test_every_module_and_data_file_is_inside(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    modules = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    catalog = {path for path in (ROOT / "costmodel" / "catalog").rglob("*") if path.is_file()}
    template = ROOT / "db" / "migrations" / "script.py.mako"
    dashboard = ROOT / "api" / "dashboard"
    pages = {path for folder in ("templates", "static") for path in (dashboard / folder).rglob("*") if path.is_file()}
    belongs = {
        path.relative_to(ROOT).as_posix()
        for path in {*modules, *catalog, *pages, template, ROOT / "costmodel" / "py.typed"}
        if path.suffix not in {".md", ".pyc"}
    }
    assert belongs <= inside, f"left out of the wheel: {sorted(belongs - inside)}"


def test_nothing_else_is_inside(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        top_level = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_licence_travels_along(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        licences = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert len(licences) == 1
        assert archive.read(licences[0]) == (ROOT / "LICENSE").read_bytes()


def test_the_packages_of_the_environment_are_the_wheels_own(environment: Path, tmp_path: Path) -> None:
    script = (
        "import importlib, json; from planner.distribution import check_distribution; check_distribution();"
        f"print(json.dumps([importlib.import_module(name).__file__ for name in {PACKAGES!r}]))"
    )
    result = run(environment / "bin" / "python", "-W", "error", "-c", script, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for origin in json.loads(result.stdout):
        assert Path(origin).is_relative_to(environment), origin


def test_suggest_answers(environment: Path, tmp_path: Path) -> None:
    scenario = "--model llama-3.2-1b --cluster dgx-h100 --devices 8 --global-batch-size 64 --seq-len 4096"
    result = run(environment / "bin" / "planner", "suggest", *scenario.split(), "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    answer = json.loads(result.stdout)
    assert answer["plans"], answer
    assert answer["plans"][0]["rank"] == 1


def test_the_store_is_made_by_the_migrations_inside(environment: Path, tmp_path: Path) -> None:
    for command in ("upgrade", "check"):
        result = run(environment / "bin" / "planner", "db", command, "--json", cwd=tmp_path)
        assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)["problems"] == []
    assert (tmp_path / "planner.db").exists()
