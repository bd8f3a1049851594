"""Tables of spellings: on each line a catalog name, and after the colon the texts that stand for it."""

from __future__ import annotations


def by_name(text: str) -> list[tuple[str, str]]:
    return [
        (spelling.strip(), name.strip())
        for line in text.replace("\n    |", " |").strip().splitlines()
        for name, spellings in [line.split(":", 1)]
        for spelling in spellings.split(" | ")
    ]
