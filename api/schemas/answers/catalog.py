"""Answers about what a question may name, and what answers rest on."""

from __future__ import annotations

from typing import Any

from api.schemas.answers.base import Answer
from api.schemas.text import Id


class ListedModel(Answer):
    """A model of the catalog."""

    name: str
    params: int
    active_params: int
    """Parameters that one token passes through; fewer than all in a mixture of experts."""
    num_layers: int
    """Decoder layers."""
    source: str
    """Where its numbers come from."""


class Models(Answer):
    """The models of the catalog, by name."""

    items: list[ListedModel]


class ModelDetails(ListedModel):
    """A model with its shape."""

    id: Id
    spec: dict[str, Any]
    """All of it; may be sent as the `model` of a question, with changes say."""


class ListedCluster(Answer):
    """A cluster of the catalog."""

    name: str
    accelerator: str
    devices_per_node: int
    max_devices: int | None
    """Null when it grows as far as one likes."""
    price_per_device_hour: float | None
    source: str
    """Where its numbers come from."""


class Clusters(Answer):
    """The clusters of the catalog, by name."""

    items: list[ListedCluster]


class ClusterDetails(ListedCluster):
    """A cluster with its accelerator and tiers."""

    id: Id
    spec: dict[str, Any]
    """All of it; may be sent as the `cluster` of a question, with changes say."""


class ListedCalibration(Answer):
    """A calibration: one of the catalog, or one that stored plans were priced under."""

    id: Id
    name: str
    retrieved: str
    """The date of its values."""
    source: str
    """Where they come from."""
    current: bool
    """Whether new questions are answered under it."""


class Calibrations(Answer):
    """Calibrations, the current one first."""

    items: list[ListedCalibration]


class CalibrationDetails(ListedCalibration):
    """A calibration with its parameters."""

    spec: dict[str, Any]
