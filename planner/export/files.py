"""Writes the files of a launch into a folder: all of them or none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from costmodel.errors import InvalidInput
from planner.export.launch import LaunchFile

_SCRIPT, _TEXT = 0o755, 0o644


def write_all(files: Sequence[LaunchFile], folder: str, *, force: bool = False) -> list[Path]:
    """The paths of what was written.

    Files that have the very text already are left alone. Each file is there whole or not at all.

    Raises:
        InvalidInput: the folder is a file, or holds one of the files with another text and ``force`` is not given.
        OSError: the folder can't be written.
    """
    into = Path(folder)
    if into.exists() and not into.is_dir():
        raise InvalidInput("out", folder, "a folder is expected, this is a file")
    paths = [into / file.name for file in files]
    for path, file in zip(paths, files, strict=True):
        if path.exists() and not force and not _is_same(path, file.text):
            raise InvalidInput("out", str(path), "it exists with another content: give --force to replace it")
    into.mkdir(parents=True, exist_ok=True)
    # Beside the files, so that what moves them is a rename.
    staging = Path(mkdtemp(prefix=".planner-", dir=into))
    try:
        for file in files:
            staged = staging / file.name
            staged.write_text(file.text, encoding="utf-8", newline="\n")
            staged.chmod(_SCRIPT if file.executable else _TEXT)
        for path, file in zip(paths, files, strict=True):
            os.replace(staging / file.name, path)
    finally:
        for left in staging.iterdir():
            left.unlink()
        staging.rmdir()
    return paths


def _is_same(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False
