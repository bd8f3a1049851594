"""Which ranks exchange with each other: how many are in a group, and how far apart they are.

Ranks are numbered along the network with tp innermost, then cp, then dp, and pp outermost; the expert mesh (etp, then
ep) folds over the ranks of one pipeline stage. So the stride says which tiers of the network a group spans.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodel.arrays import Num
from costmodel.terms.term import Axes


class Group(NamedTuple):
    """A group of ranks, of which every one has its like.

    Attributes:
        size: ranks in it.
        stride: from one of them to the next.
    """

    size: Num
    stride: Num


def tensor(x: Axes) -> Group:
    """Ranks that share out a layer."""
    return Group(x.tp, np.ones_like(x.tp))


def expert_tensor(x: Axes) -> Group:
    """Ranks that share out an expert."""
    return Group(x.etp, np.ones_like(x.etp))


def context(x: Axes) -> Group:
    """Ranks that share out a sequence."""
    return Group(x.cp, x.tp)


def experts(x: Axes) -> Group:
    """Ranks that share out the experts of a layer."""
    return Group(x.ep, x.etp)


def pipeline(x: Axes) -> Group:
    """The stages of one pipeline."""
    return Group(x.pp, x.tp * x.cp * x.dp)


def shards(x: Axes) -> Group:
    """Ranks over which dense parameters, gradients and optimizer may be cut."""
    return Group(x.dp_shard * x.cp, x.tp)


def replicas(x: Axes) -> Group:
    """Ranks that hold the same shard of them."""
    return Group(x.dp_replicate, x.tp * x.cp * x.dp_shard)


def expert_shards(x: Axes) -> Group:
    """The same of the experts' parameters; with few shards the expert mesh can be smaller than one shard group."""
    return Group(np.maximum(_expert_share(x), 1.0), x.ep * x.etp)


def expert_replicas(x: Axes) -> Group:
    """What is left of such a mesh are replicas too."""
    share, stride = _expert_share(x), x.ep * x.etp
    return Group(x.dp_replicate * np.minimum(share, 1.0), stride * np.maximum(share, 1.0))


def _expert_share(x: Axes) -> Num:
    return x.tp * x.cp * x.dp_shard / (x.ep * x.etp)
