"""What the server's catalog holds, typed and frozen."""

from __future__ import annotations

from typing import Any

from planner.client.answers import Told


class ListedModel(Told):
    """A model of the server's catalog."""

    name: str
    params: int
    active_params: int
    num_layers: int
    source: str


class ModelDetails(ListedModel):
    """A model with its shape."""

    id: str
    spec: dict[str, Any]


class ListedCluster(Told):
    """A cluster of the server's catalog."""

    name: str
    accelerator: str
    devices_per_node: int
    max_devices: int | None
    price_per_device_hour: float | None
    source: str


class ClusterDetails(ListedCluster):
    """A cluster with its accelerator and tiers."""

    id: str
    spec: dict[str, Any]


class ListedCalibration(Told):
    """A calibration; new questions are answered under the ``current`` one."""

    id: str
    name: str
    retrieved: str
    source: str
    current: bool


class CalibrationDetails(ListedCalibration):
    """A calibration with its parameters."""

    spec: dict[str, Any]
