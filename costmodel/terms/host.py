"""Host work per layer: the device can't run a layer faster than the host launches its kernels."""

from __future__ import annotations

import numpy as np

from costmodel.facts import Facts
from costmodel.terms.term import Axes, Outputs, Term


def _floor(f: Facts, x: Axes) -> Outputs:
    """Least seconds of one layer, forward and backward, for one micro-batch.

    Measured floors: about 4.5 ms under nanotron on H100 whatever tp and micro-batch, and ``4 + 3.4 tp`` ms in
    pipelines that leave the scale-up domain (docs/cost-model.md, "Host-bound layers").
    """
    cal = f.cal
    leaves = (x.pp > 1.0) & (x.tp * x.cp * x.dp * x.pp > f.hardware.tier_devices[0])
    pipelined = cal.host_pipeline_layer_s + cal.host_pipeline_layer_tp_s * x.tp
    return {"host_layer_s": np.where(leaves, np.maximum(pipelined, cal.host_layer_s), cal.host_layer_s)}


HOST = Term(name="host", axes=("tp", "cp", "dp", "pp"), evaluate=_floor)
