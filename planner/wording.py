"""A plan in a few characters, for tables and lines of logs."""

from __future__ import annotations

from typing import Any

_MESH = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")


def sharding(plan: dict[str, Any]) -> str:
    """The ZeRO stage: ``2`` or, sharded within groups only, ``2 over 8``."""
    partly = plan["zero_stage"] > 0 and plan["dp_replicate"] > 1
    return f"{plan['zero_stage']} over {plan['dp_shard']}" if partly else str(plan["zero_stage"])


def mesh_in_words(plan: dict[str, Any]) -> str:
    """``tp 8, pp 16, dp 128``: every degree above one, and dp."""
    return ", ".join(f"{axis} {plan[axis]}" for axis in _MESH if plan[axis] > 1 or axis == "dp")


def plan_in_short(plan: dict[str, Any]) -> str:
    """The axes that tell plans apart, ``tp2 pp2 dp4 zero1 mbs1 full 3/8``; those of degree 1 are left out."""
    degrees = [f"{axis}{plan[axis]}" for axis in ("tp", "cp", "pp", "vpp", "ep", "dp") if plan[axis] > 1]
    words = [*(degrees or ["dp1"]), f"zero{plan['zero_stage']}", f"mbs{plan['micro_batch_size']}"]
    if plan["dp_replicate"] > 1 and plan["dp_shard"] > 1:
        words.append(f"shards{plan['dp_shard']}")
    if plan["pp"] > 1:
        words.append(plan["schedule"])
    if plan["recompute"] != "none":
        words.append(plan["recompute"])
    if plan["recompute"] == "full":
        words.append(f"{sum(plan['recomputed_layers_per_stage'])}/{sum(plan['layers_per_stage'])}")
    return " ".join(words)
