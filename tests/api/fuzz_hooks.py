"""Hooks of schemathesis (``SCHEMATHESIS_HOOKS``): real names and ids among what it makes up.

No schema can say which models there are, so hardly any question of a fuzzer's own gets past the catalog. Here most
values that are well formed are replaced by ones that exist; what is ill formed is left as it is. ``$FUZZ_KNOWN`` tells
which search and plans there are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from random import Random
from string import ascii_letters
from typing import Any
from zlib import crc32

import schemathesis

_KNOWN: dict[str, Any] = json.loads(os.environ["FUZZ_KNOWN"])
_ID_LENGTH = 32
# More than an index of PostgreSQL holds, and nothing that it could make shorter.
_LONG = "".join(Random(1).choices(ascii_letters, k=9_000))
_CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ("llama-3-8b", "llama-3.1-70b", _KNOWN["model"], _KNOWN["model"] | {"name": _LONG}),
    "cluster": (
        "dgx-h100",
        "rtx4090-1",
        {"name": "ours", "extends": "dgx-h100"},
        {"name": _LONG, "extends": "dgx-h100"},
        {"name": "ours", "extends": "dgx-h100", "accelerator": {"extends": "h100-sxm5-80gb", "name": _LONG}},
    ),
    "precision": ("bf16", "fp8"),
    "optimizer": ("adamw",),
    "framework": ("megatron-core", "torchtitan"),
    "framework_version": (None,),
    "devices": (1, 8, 16),
    "global_batch_size": (16, 64),
    "seq_len": (512, 2048),
    "top": (1, 3),
    "max_seconds": (0.01, 1.0, 300),
    "min_free_gib": (None, 1.0),
    "pins": ([], ["pp=1"], ["tp=1..2", "cp=1"]),
    "forbids": ([], ["recompute=full"]),
    "allow": ([], ["offload"]),
    "plan_id": tuple(_KNOWN["plans"]),
    "search_id": (_KNOWN["search"],),
    "measurement_id": (_KNOWN["measurement"],),
    "study_id": (_KNOWN["study"],),
    "scenario_id": (_KNOWN["scenario"],),
    "name": ("llama-3-8b", "dgx-h100", "published-2026-11"),
    "plan": tuple(
        _KNOWN["plan"] | change
        for change in ({}, {"tp": 3}, {"recompute": "selective", "recompute_modules": []}, {"recompute": "full"})
    ),
}
_NUMBERS = frozenset({"devices", "global_batch_size", "seq_len", "top", "max_seconds", "min_free_gib"})
_LISTS = frozenset({"pins", "forbids", "allow"})
_OBJECTS = frozenset({"plan"})


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Bodies of questions, batches and measurements."""
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("items"), list):
        return body | {"items": [_among_real(item) for item in body["items"]]}
    return _among_real(body)


@schemathesis.hook
def map_path_parameters(context: Any, parameters: Any) -> Any:
    """Ids and names in paths."""
    return _among_real(parameters)


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """Filters, and the plans of a comparison."""
    if not isinstance(query, dict):
        return query
    mapped: dict[str, Any] = _among_real(query)
    plans = query.get("plan")
    if isinstance(plans, list) and all(map(_is_id, plans)) and len(set(plans)) == len(plans) <= len(_KNOWN["plans"]):
        mapped["plan"] = _KNOWN["plans"][: len(plans)]
    return mapped


def _among_real(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    return {name: _real(name, value) if _is_well_formed(name, value) else value for name, value in found.items()}


def _real(name: str, value: Any) -> Any:
    """One that exists, chosen by what was made up, so that a run can be repeated; one in four stays as it is."""
    choices = _CHOICES[name]
    number = crc32(repr((name, value)).encode("utf-8", "surrogatepass"))
    return choices[number // 4 % len(choices)] if number % 4 else value


def _is_well_formed(name: str, value: Any) -> bool:
    if name not in _CHOICES:
        return False
    check: Callable[[Any], bool] = _is_text
    if name in _NUMBERS:
        check = _is_number
    elif name in _LISTS:
        check = _is_list
    elif name in _OBJECTS:
        check = _is_object
    elif name.endswith("_id"):
        check = _is_id
    return check(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _ID_LENGTH and set(value) <= set("0123456789abcdef")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 300


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and len(text) <= 2000 for text in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
