"""Models of the catalog by what people call them: ``Nemotron_3_Nano``, ``DeepSeek-V2-Lite (16B)``."""

from __future__ import annotations

import re

from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.runs.model_words import model_prefixes, model_suffixes
from costmodel.spec.model import ModelSpec

FAR_OFF = 0.15
"""Relative difference from which on a count of parameters is of another model."""


def model_called(text: str) -> ModelSpec | None:
    """The model whose whole name the text begins with, the longest such; else the shortest that begins with the text.

    ``Nemotron_3_Nano`` and ``nemotron-3-nano-30b-a3b`` begin alike, whatever separates their words.
    """
    text = text.strip().rpartition("/")[2]
    wanted = "".join(_words_of(text))
    for prefix in model_prefixes():
        wanted = wanted.removeprefix(prefix)
    if not any(letter.isdigit() for letter in wanted):
        return None  # a family's name, not a model's
    said, unfinished = [], []
    for name in model_names():
        words = _words_of(name)
        whole = "".join(words)
        if wanted.startswith(whole) and _adds_nothing(text, wanted[len(whole) :], name):
            said.append(name)
        elif any(wanted == "".join(words[:count]) for count in range(1, len(words))):
            unfinished.append(name)
    if said:
        return load_model(min(said, key=lambda name: (-len(name), name)))
    return load_model(min(unfinished, key=lambda name: (len(name), name))) if unfinished else None


def _adds_nothing(text: str, rest: str, name: str) -> bool:
    """Whether what follows a catalog name only says of it what is so: a known suffix, its size."""
    size = re.search(r"(\d+(?:\.\d+)?)\s*b\W*$", text.lower())
    if size and rest == "".join(_words_of(size.group(0))):
        total = load_model(name).params.total / 1e9
        return abs(total / max(float(size.group(1)), 1e-9) - 1.0) <= FAR_OFF
    return re.fullmatch(rf"(?:{'|'.join(sorted(model_suffixes()))}|v\d+)*", rest) is not None


def _words_of(text: str) -> list[str]:
    """Runs of letters and runs of digits."""
    return re.findall(r"[a-z]+|\d+", text.lower())


def size_called(text: str) -> float | None:
    """Billions of parameters that a dense model's name speaks of: ``LLaMA-7B``; not ``8x7B`` and not ``30B-A3B``."""
    lowered = text.lower()
    if re.search(r"\d\s*x\s*\d|moe|a\d+(?:\.\d+)?b\b", lowered):
        return None
    size = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)\s*b\b", lowered)
    return float(size.group(1)) if size and float(size.group(1)) > 0 else None
