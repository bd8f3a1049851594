"""What the procedure says of plans: meshes, sharding and numbers in words."""

from __future__ import annotations

from costmodel.spec.plan import RECOMPUTES
from planner.explain.shapes import Found, Shape
from planner.search.constraints import Constraints
from planner.search.need import Need

_GIB = 2**30
_STAGES = ("nothing sharded", "ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP)")


def gib(size_bytes: float) -> str:
    """GiB with one digit."""
    return f"{size_bytes / _GIB:.1f}"


def mesh(shape: Shape) -> str:
    """``tp 8, pp 16``; ``data parallelism alone`` where nothing else is cut."""
    axes = [f"{axis} {getattr(shape, axis)}" for axis in ("tp", "cp", "pp", "ep", "etp") if getattr(shape, axis) > 1]
    return ", ".join(axes) or "data parallelism alone"


def sharding(found: Found) -> str:
    """``ZeRO-3 (FSDP) over 64``, or as many replicas of shards."""
    row = found.row
    kind = _STAGES[row["zero_stage"]]
    if row["zero_stage"] == 0:
        return f"{row['dp']} replica{'s' if row['dp'] > 1 else ''}, {kind}"
    copies = f" in {row['dp_replicate']} replicas (HSDP)" if row["dp_replicate"] > 1 else ""
    return f"{kind} over {row['dp_shard']}{copies}"


def plan(found: Found, usable_bytes: float) -> str:
    """A plan in a line: mesh, memory, time and what of it is exposed or waits."""
    row = found.row
    axes = [f"{axis} {row[axis]}" for axis in ("tp", "cp", "pp", "ep", "etp") if row[axis] > 1] + [f"dp {row['dp']}"]
    shares = [f"{found.share(part):.1%} {part}" for part in _PARTS if found.share(part) >= 0.005]
    exposed = f", of it {', '.join(shares)}" if shares else ""
    hosts = f", and {found.need.hosts}" if found.need.hosts else ""
    return (
        f"{', '.join(axes)} takes {found.step_time_s:.3g} s a step{exposed}, and {gib(found.peak_bytes)} of "
        f"{gib(usable_bytes)} GiB{hosts}"
    )


_PARTS = ("dp_comm", "tp_comm", "cp_comm", "ep_comm", "pp_comm", "bubble", "recompute")


def tuned(found: Found) -> str:
    """What the last step settles."""
    row = found.row
    stages = f", {row['vpp']} virtual stages" if row["vpp"] > 1 else ""
    return (
        f"micro-batch {row['micro_batch_size']} x {row['num_microbatches']}, {_recompute(row['recompute'])}"
        f"{stages}, {sharding(found)}"
    )


def _recompute(code: int) -> str:
    policy = RECOMPUTES[code]
    return f"{'no' if policy == 'none' else policy} recompute"


def numbers(found: Found | None, usable_bytes: int, exposed_share: float) -> dict[str, int | float]:
    """The numbers of a plan so far."""
    if found is None:
        return {}
    row = found.row
    shown = {part: found.time[part] for part in _PARTS if found.time.get(part)}
    return {
        "dp": row["dp"],
        "zero_stage": row["zero_stage"],
        "dp_shard": row["dp_shard"],
        "micro_batch_size": row["micro_batch_size"],
        "num_microbatches": row["num_microbatches"],
        "step_time_s": found.step_time_s,
        **{f"{part}_s": seconds for part, seconds in shown.items()},
        "dp_exposed_share": found.share("dp_comm"),
        "dp_exposed_limit": exposed_share,
        "peak_bytes": round(found.peak_bytes),
        "usable_bytes": usable_bytes,
        **host_numbers(found.need),
    }


def host_numbers(need: Need) -> dict[str, int]:
    """What is offloaded and what the hosts have, nothing where nothing is offloaded."""
    if not need.host_bytes:
        return {}
    there = need.host_memory_bytes
    known = {"host_memory_bytes_per_node": there} if there is not None else {}
    return {"host_bytes_per_node": round(need.host_bytes), **known}


def pinned(constraints: Constraints, axis: str) -> str:
    """`` tp is pinned: --pin tp=8.``, nothing where no pin or forbid speaks of the axis."""
    return f" {axis} is pinned: {constraints.describe(axis)}." if constraints.touches(axis) else ""


def verdict(found: Found | None) -> str:
    """That a plan does not fit, and where not; of no plan, that nothing does."""
    return found.need.verdict if found is not None else "nothing fits"


def seconds(found: Found | None) -> float:
    """For comparing: without a plan the longest."""
    return found.step_time_s if found is not None else float("inf")


def lack(found: Found | None) -> float:
    """For comparing: what is needed beyond what there is; without a plan the largest."""
    return found.need.lack if found is not None else float("inf")
