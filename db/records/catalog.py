"""What is given: models, clusters, calibrations, scenarios."""

from __future__ import annotations

from dataclasses import dataclass

from db.records.values import Json


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    name: str
    params_total: int
    params_active: int
    num_layers: int
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Cluster:
    id: str
    name: str
    accelerator: str
    devices_per_node: int
    max_devices: int | None
    price_per_device_hour: float | None
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Calibration:
    id: str
    name: str
    retrieved: str
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Scenario:
    id: str
    model: Model
    cluster: Cluster
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    optimizer: str
    framework: str
    framework_version: str
    min_free_bytes: int | None
    spec: Json
