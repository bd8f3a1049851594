"""Vocabulary sizes of published tokenizers, for files that name a tokenizer instead of a number."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from costmodel.spec.config_keys import ConfigKeys


@cache
def _sizes() -> dict[str, int]:
    table = resources.files("costmodel.catalog") / "tokenizers.csv"
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    return {row["tokenizer"].lower(): int(row["vocab_size"]) for row in rows}


def vocabulary_of(keys: ConfigKeys) -> int:
    """``vocab_size``, else that of the tokenizer's model, with a note; a problem where neither is known."""
    if keys.has("padded_vocab_size") or keys.has("vocab_size"):
        return keys.size("vocab_size", "padded_vocab_size")
    tokenizer = keys.raw("tokenizer_model")
    keys.has("tokenizer_model")
    size = _sizes().get(str(tokenizer).lower())
    if size is None:
        known = f"{tokenizer!r} is not a tokenizer known here" if tokenizer else "no tokenizer is named either"
        keys.problem("vocab_size", None, f"it is required: {known}")
        return 1
    keys.note(f"vocab_size is not in the file: {size} is that of the published config of {tokenizer}")
    return size
