"""A plan of an answer in a few characters: what the terminal's table and the pages' table both show."""

from __future__ import annotations

from typing import Any


def sharding(plan: dict[str, Any]) -> str:
    """The ZeRO stage: ``2`` or, sharded within groups only, ``2 over 8``."""
    partly = plan["zero_stage"] > 0 and plan["dp_replicate"] > 1
    return f"{plan['zero_stage']} over {plan['dp_shard']}" if partly else str(plan["zero_stage"])
