"""A measured collective: seconds of one operation on one shape of a group, over message sizes.

The catalog holds published sweeps in this form, and a cluster file may give its own (``collectives:``), say from the
log of ``nccl-tests``, whose conventions for sizes are the ones used here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from costmodel.spec.base import Frozen, IsoDate, PositiveFloat, PositiveInt
from costmodel.spec.validation import Unusable

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
_MICROSECOND = 1e-6
Point = tuple[PositiveInt, PositiveFloat]


class MeasuredCollective(Frozen):
    """One sweep of an operation over message sizes.

    Attributes:
        ranks: devices of the group; ``domains``: scale-up domains (nodes, NVL72 racks) that they lie in, as many in
            each.
        points: (bytes, microseconds), sizes ascending, two at least. Bytes are what nccl-tests prints: the whole buffer
            of an all-reduce, the gathered one of an all-gather or reduce-scatter, what one rank sends to all in an
            all-to-all, and to its neighbour in a send and receive.
    """

    op: CollectiveOp
    ranks: Annotated[PositiveInt, Field(ge=2)]
    domains: PositiveInt = 1
    points: Annotated[tuple[Point, ...], Field(min_length=2)]
    source: str = ""
    retrieved: IsoDate = ""

    @model_validator(mode="after")
    def _evenly_spread(self) -> MeasuredCollective:
        if self.ranks % self.domains:
            raise Unusable("domains", self.domains, f"the {self.ranks} ranks have to lie in it evenly")
        return self

    @model_validator(mode="after")
    def _sizes_rise(self) -> MeasuredCollective:
        for (smaller, _), (larger, _) in pairwise(self.points):
            if larger <= smaller:
                raise Unusable("points", larger, f"sizes have to rise, and this one comes after {smaller}")
        return self

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of the points."""
        return tuple(microseconds * _MICROSECOND for _, microseconds in self.points)

    @property
    def bus_bytes_per_s(self) -> float:
        """What the links of a ring carry at the best of the points, as nccl-tests counts it."""
        passes = {"all_reduce": 2.0, "send_recv": self.ranks / (self.ranks - 1)}.get(self.op, 1.0)
        share = passes * (self.ranks - 1) / self.ranks
        return max(share * size / seconds for (size, _), seconds in zip(self.points, self.seconds, strict=True))
