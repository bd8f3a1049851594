"""Host work per layer: the device can't run a layer faster than the host launches its kernels."""

from __future__ import annotations

import numpy as np

from costmodel.facts import Facts
from costmodel.terms.term import Axes, Outputs, Term


def _floor(f: Facts, x: Axes) -> Outputs:
    """Least seconds of one layer, forward and backward, for one micro-batch.

    One floor whatever tp and micro-batch, and in pipelines that leave the scale-up domain one that grows with tp, as a
    sweep of nanotron on H100 shows (docs/cost-model.md, "Compute"); the calibration has both.
    """
    cal = f.cal
    leaves = (x.pp > 1.0) & (x.tp * x.cp * x.dp * x.pp > f.hardware.tier_devices[0])
    pipelined = cal.host_pipeline_layer_s + cal.host_pipeline_layer_tp_s * x.tp
    return {"host_layer_s": np.where(leaves, np.maximum(pipelined, cal.host_layer_s), cal.host_layer_s)}


HOST = Term(name="host", axes=("tp", "cp", "dp", "pp"), gives=("host_layer_s",), evaluate=_floor)
