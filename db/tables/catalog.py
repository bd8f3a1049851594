"""What is given: models, clusters, calibrations, scenarios."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Whole32
from db.tables.base import Base, fingerprint_key


class ModelRow(Base):
    """A model that something was asked about."""

    __tablename__ = "models"

    id: Mapped[str] = fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    params_total: Mapped[int]
    params_active: Mapped[int]
    num_layers: Mapped[int] = mapped_column(Whole32)
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class ClusterRow(Base):
    """A cluster that something was asked about."""

    __tablename__ = "clusters"

    id: Mapped[str] = fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    accelerator: Mapped[str] = mapped_column(index=True)
    devices_per_node: Mapped[int] = mapped_column(Whole32)
    max_devices: Mapped[int | None]
    price_per_device_hour: Mapped[float | None]
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CalibrationRow(Base):
    """A calibration that something was answered under."""

    __tablename__ = "calibrations"

    id: Mapped[str] = fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    retrieved: Mapped[str]
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class ScenarioRow(Base):
    """What is given: a model on devices of a cluster, with a batch, in a precision, under a framework."""

    __tablename__ = "scenarios"

    id: Mapped[str] = fingerprint_key()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"), index=True)
    devices: Mapped[int]
    global_batch_size: Mapped[int]
    seq_len: Mapped[int]
    precision: Mapped[str]
    optimizer: Mapped[str]
    framework: Mapped[str]
    framework_version: Mapped[str]
    min_free_bytes: Mapped[int | None]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
