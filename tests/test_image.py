"""The image, as far as a machine without a container engine can tell: its check passes, and notices what is broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE")


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "docker" / "check_image.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy of what the check reads, without the packages, for a test to spoil."""
    for name in CHECKED:
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docker", tmp_path / "docker", ignore=shutil.ignore_patterns("__pycache__", ".env"))
    return tmp_path


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.slow
def test_the_image_is_built_serves_and_ends() -> None:
    result = check()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "asked and ended as it should" in result.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("Dockerfile", "python:3.11-slim-bookworm AS", "python AS", "pinned by a tag"),
        ("Dockerfile", "COPY pyproject.toml", "COPY setup.py", "COPY setup.py"),
        (".dockerignore", "!README.md", "", "COPY README.md"),
        ("Dockerfile", "WORKDIR /src", "VOLUME /src", "VOLUME"),
        ("Dockerfile", "USER 10001", "USER root", "USER root"),
        ("Dockerfile", "PYTHONSAFEPATH=1 ", "", "PYTHONSAFEPATH=1 is missing"),
        ("Dockerfile", "HEALTHCHECK", "RUN echo", "no HEALTHCHECK"),
        ("Dockerfile", 'ENTRYPOINT ["planner"]', "ENTRYPOINT planner", "a JSON list of words"),
    ],
)
def test_a_broken_dockerfile_is_noticed(broken: Path, file: str, old: str, new: str, said: str) -> None:
    spoil(broken / file, old, new)
    result = check("--only", "image", "--root", broken)
    assert result.returncode == 1, result.stdout
    assert said in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("condition: service_healthy", "condition: service_well", "'service_well' is no condition"),
        ("    migrate:\n      condition", "    migration:\n      condition", "'migration'"),
        ('restart: "no"', "restart: always", "it never completes"),
        ('["CMD", "pg_isready"', '["pg_isready"', "CMD-SHELL"),
        ("      interval: 5s", "      intervall: 5s", "intervall"),
        ("- postgres:/var/lib", "- data:/var/lib", "'data' is not declared"),
        ("8000-8001:8000", "8000:8000", "2 replicas need as many ports"),
        ("context: ..", "context: .", "there is no"),
        ("      VERSION:", "      RELEASE:", "RELEASE"),
        ('PLANNER_SLOTS: "1"', "PLANNER_SLOTS: 1", "in quotes"),
        ("${POSTGRES_PASSWORD:?put POSTGRES_PASSWORD into docker/.env}", "${POSTGRES_PASSWORD}", "POSTGRES_PASSWORD"),
        ("services:", "service:", "service is not known"),
        ("name: planner", "name: [planner", "compose.yaml"),
    ],
)
def test_a_broken_composition_is_noticed(broken: Path, old: str, new: str, said: str) -> None:
    spoil(broken / "docker" / "compose.yaml", old, new)
    result = check("--only", "compose", "--root", broken)
    assert result.returncode == 1, result.stdout
    assert said in result.stderr


def test_no_password_is_committed() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "docker/.env"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ignored.returncode == 128:
        pytest.skip("not a git checkout")
    assert ignored.returncode == 0
