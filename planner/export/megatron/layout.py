"""``pipeline_model_parallel_layout``: which layers every virtual stage has, as one text.

Virtual stages are divided by ``|`` in the order in which a micro-batch meets them; ``E`` is the embedding, ``t`` a
decoder layer, ``m`` a multi-token-prediction layer, ``L`` the head with its loss, and ``x*3`` or ``(...)*3`` repeats
(megatron/core/transformer/pipeline_parallel_layer_layout.py of megatron-core 0.14.0, parse_str_to_list).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from costmodel.spec.base import MOST_LAYERS

_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,5})")
_LETTER = re.compile(r"([EtmL|])\*(\d{1,5})")
_LONGEST = 4 * MOST_LAYERS


def layout_text(counts: Sequence[int], num_mtp_layers: int) -> str:
    """The layout of virtual stages with so many decoder layers each; the model's ends are on the first and the last."""
    stages = [_letters("t", count) for count in counts]
    stages[0] = "E" + stages[0]
    stages[-1] += _letters("m", num_mtp_layers) + "L"
    text = ""
    *before, last = stages
    for stage, run in groupby(before):
        times = len(list(run))
        text += f"{stage}|" if times == 1 else f"({stage}|)*{times}"
    return text + last


def layout_counts(text: str) -> tuple[list[int], int] | None:
    """Decoder layers of every virtual stage, and the layers of multi-token prediction; None if it is no layout."""
    flat = text.replace(",", "").replace(" ", "")
    for pattern in (_GROUP, _LETTER):
        while pattern.search(flat):
            if sum(len(found[1]) * int(found[2]) for found in pattern.finditer(flat)) > _LONGEST:
                return None
            flat = pattern.sub(lambda found: found[1] * int(found[2]), flat)
    if set(flat) - set("EtmL|") or flat.count("E") != 1 or flat.count("L") != 1:
        return None
    return [stage.count("t") for stage in flat.split("|")], flat.count("m")


def _letters(letter: str, count: int) -> str:
    return letter * count if count < 3 else f"{letter}*{count}"
