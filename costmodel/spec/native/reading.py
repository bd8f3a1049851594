"""What the dialects share: plain keys, a family of Hugging Face's read under another vocabulary, layer patterns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families import FAMILIES
from costmodel.spec.families.common import Fields, check_relations, name_unread
from costmodel.spec.key_words import holds_something, is_harmless, of_structure, of_widths
from costmodel.spec.validation import together

_LONGEST_PATTERN = 10_000
_NOT_UNDERSTOOD = "it is not understood, and it speaks of another architecture"


def plain_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Keys without leading dashes and with underscores; those that hold nothing are absent."""
    plain = {str(key).lstrip("-").replace("-", "_"): value for key, value in data.items()}
    return {key: value for key, value in plain.items() if value is not None}


def renamed(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The values of ``names``' keys under their new names, where the data has them."""
    return {new: data[old] for old, new in names.items() if data.get(old) is not None}


def as_family(
    model_type: str, config: Mapping[str, Any], names: dict[str, str], *, apart: Iterable[str] = (), strict: bool = True
) -> Fields:
    """The fields that a family makes of ``config``; its problems name the dialect's own keys.

    Args:
        names: the dialect's key -> the family's.
        apart: keys of ``config`` that the dialect reads itself.
        strict: whether keys of another architecture are refused; a file of a whole run has them with values of none.
    """
    keys = ConfigKeys(config)
    keys.read.update(apart)
    fields = FAMILIES[model_type](keys)
    check_relations(keys)
    # Of several keys that mean the same, the first is the usual one.
    known_as = {new: old for old, new in reversed(names.items())}
    name_unread(keys, fields, _NOT_UNDERSTOOD, strict=strict, known_as=known_as)
    raise_problems(keys, known_as)
    return fields | {"notes": keys.notes}


def name_left_over(data: Mapping[str, Any], understood: Iterable[str], *, strict: bool) -> tuple[str, ...]:
    """A note on keys that no reader of the dialect looks at.

    Args:
        strict: for files that describe a model and nothing else: what speaks of a structure is refused, and all other
            keys are named but those that change no parameter. Else those are named that speak of a model's shape.
    """
    left = [key for key in sorted(set(data) - set(understood)) if holds_something(data[key]) and not is_harmless(key)]
    structure = [key for key in left if of_structure(key)]
    if strict and structure:
        raise together([InvalidInput(key, data[key], _NOT_UNDERSTOOD) for key in structure])
    named = left if strict else [key for key in left if of_structure(key) or of_widths(key)]
    if not named:
        return ()
    shown = ", ".join(f"{key} {data[key]}"[:60] for key in named)
    return (f"keys that are not understood, and planned without: {shown}",)


def raise_problems(keys: ConfigKeys, names: Mapping[str, str] | None = None) -> None:
    """One error for all problems, under the names that the file's author knows them by."""
    if keys.problems:
        known = names or {}
        problems = [
            type(found)(known.get(found.field, found.field), found.value, found.expected) for found in keys.problems
        ]
        raise together(problems)


def layer_pattern(text: Any) -> list[int] | None:
    """``([0]*3+[1]*58)`` as a list of 0 and 1; None if it is anything else."""
    if isinstance(text, list):
        return text if text and all(type(item) is int and item in (0, 1) for item in text) else None
    if not isinstance(text, str) or len(text) > _LONGEST_PATTERN:
        return None
    try:
        items = _evaluated(ast.parse(text.strip().strip("'\""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return items if isinstance(items, list) and items else None


def _evaluated(node: ast.expr) -> list[int] | int:
    """Lists of 0 and 1, their sums, and their products with a number; ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= _LONGEST_PATTERN:
        return node.value
    if isinstance(node, ast.List):
        found = [_evaluated(item) for item in node.elts]
        if all(item in (0, 1) for item in found):
            return [item for item in found if isinstance(item, int)]
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            return left * right if len(left) * right <= _LONGEST_PATTERN else []
        if isinstance(node.op, ast.Mult) and isinstance(left, int) and isinstance(right, list):
            return right * left if len(right) * left <= _LONGEST_PATTERN else []
    raise ValueError("not a pattern")
