"""Seconds of a collective over a tiered network: measured where its very shape was measured, else by algorithm.

A group of ``group`` ranks whose neighbours lie ``stride`` devices apart has ``l_k`` members inside one unit of tier
``k`` (``tiers``). Each operation is priced by the algorithms that NCCL has for it (``reductions``, ``exchange``) as
latency and seconds per byte (``cost``); where a sweep of the same operation on the same shape is known, its curve over
the message size takes their place (``costmodel.curves``).
"""

from costmodel.collectives.cost import TierCost
from costmodel.collectives.exchange import all_to_all, neighbours, remote_units
from costmodel.collectives.reductions import (
    all_gather,
    all_reduce,
    all_reduce_algorithms,
    broadcast,
    reduce_scatter,
    taken,
)

__all__ = [
    "TierCost",
    "all_gather",
    "all_reduce",
    "all_reduce_algorithms",
    "all_to_all",
    "broadcast",
    "neighbours",
    "reduce_scatter",
    "remote_units",
    "taken",
]
