"""What each parameter of a calibration means: the words of ``costmodel.calibration.parameters``."""

from __future__ import annotations

import inspect
import re
from functools import lru_cache

from costmodel.calibration.parameters import Parameters

# ``name, other_name: what they are``, over several lines.
_TOLD = re.compile(r"^    ((?:\w+, )*\w+): (.+?)(?=^    \w|\Z)", re.MULTILINE | re.DOTALL)


def meaning_of(parameter: str) -> str:
    """In a sentence or two; empty where the interpreter leaves documentation out."""
    return _meanings().get(parameter, "")


@lru_cache(maxsize=1)
def _meanings() -> dict[str, str]:
    _, _, attributes = (inspect.getdoc(Parameters) or "").partition("Attributes:\n")
    return {name: _sentence(text) for names, text in _TOLD.findall(attributes) for name in names.split(", ")}


def _sentence(text: str) -> str:
    said = " ".join(text.split())
    return said[:1].upper() + said[1:]
