"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from costmodel.catalog.folders import expanded
from costmodel.errors import InvalidInput


def write_whole(path: str, text: str, field: str) -> None:
    """Write the file beside its place and move it there, so that a reader never sees half of it.

    Raises:
        InvalidInput: the path names a directory, or a file in a directory that there isn't.
        OSError: the disk is full, or the directory may not be written to.
    """
    target = expanded(path, field).resolve()  # what a link points at is written, not the link
    if target.is_dir():
        raise InvalidInput(field, path, "it is a directory; name a file")
    if not target.parent.is_dir():
        raise InvalidInput(field, path, "its directory doesn't exist")
    if target.exists() and not target.is_file():  # a pipe or /dev/stdout: nothing to move into place
        target.write_text(text, encoding="utf-8")
        return
    _replace(target, text)


def _replace(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
