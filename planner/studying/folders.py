"""Where trials have their files, unless somebody says otherwise: beside the database of the user."""

from __future__ import annotations

from pathlib import Path

from db.urls import default_path

_NAME = "trials"


def trials_folder() -> Path:
    """The folder; a folder for each study in it.

    Raises:
        Missing: the user has no home directory.
    """
    return default_path().parent / _NAME
