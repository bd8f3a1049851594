"""What is believed of parameters before any run is seen, and for which classes of cases a fit may tell them apart."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

from pydantic import Field

from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.calibration.parameters import PARAMETER_NAMES
from costmodel.calibration.ranges import RunRange
from costmodel.catalog.documents import read_mapping
from costmodel.errors import UnknownName
from costmodel.spec.base import Frozen, IsoDate, PositiveFloat
from costmodel.spec.validation import build

KeyField = Literal["accelerator", "family", "precision", "framework"]
KEY_FIELDS: tuple[KeyField, ...] = ("accelerator", "family", "precision", "framework")

# A row of a calibration that says nothing of its error is trusted as a fitted one of the carried runs typically is.
_USUAL_SPREAD = 0.1
_LEAST_SPREAD = 0.01
# What holds for everything there is, the runs of one place move little.
_SPREAD_OF_ALL = 0.02


class Prior(ParameterRow):
    """A row with how far the truth may lie from it.

    Attributes:
        spread: standard deviation of the log of the value; None: known, or not told by runs, so no fit moves it.
        start: where a fit begins to look, if not at the value: a floor that lies below everything tells it nothing.
    """

    spread: PositiveFloat | None = None
    start: PositiveFloat | None = None

    def as_row(self) -> ParameterRow:
        """The same as a calibration has it."""
        return ParameterRow(**self.model_dump(exclude={"spread", "start"}))


class ClassSpread(Frozen):
    """Classes of cases that may have a value of their own.

    Attributes:
        by: what tells the classes apart.
        spread: standard deviation of the log of their values around that of the next more general row.
        always: make a row even where the runs at hand are all that the more general row speaks of: it knows of others.
    """

    by: tuple[KeyField, ...] = Field(min_length=1)
    spread: PositiveFloat
    always: bool = False


class ParameterClasses(Frozen):
    """The classes of one parameter, the most general first.

    Attributes:
        start: where a fit begins to look for their values, if not at the next more general row's.
    """

    name: str
    start: PositiveFloat | None = None
    classes: tuple[ClassSpread, ...]


class Priors(Frozen):
    """Where a fit begins. A row that names nothing holds for every case.

    Attributes:
        ranges: what the runs were like that went into the rows already.
        own_classes: what a fit to the runs of one place may add to a calibration that was fitted to those of many.
    """

    name: str
    retrieved: IsoDate
    source: str
    parameters: tuple[Prior, ...]
    classes: tuple[ParameterClasses, ...]
    own_classes: tuple[ParameterClasses, ...] = ()
    ranges: tuple[RunRange, ...] = ()


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """The priors of the catalog: microbenchmarks, documentation and counts, no training run.

    Raises:
        UnknownName: a row or a class is of no parameter there is.
    """
    priors = build(Priors, read_mapping(resources.files("costmodel.catalog") / "priors.yaml", "priors"), "priors")
    named = {row.name for row in priors.parameters} | {entry.name for entry in (*priors.classes, *priors.own_classes)}
    if unknown := named - set(PARAMETER_NAMES):
        raise UnknownName("priors.parameters.name", min(unknown), PARAMETER_NAMES)
    return priors


def calibration_of(
    priors: Priors, *, name: str | None = None, retrieved: str | None = None, carried: bool = False
) -> Calibration:
    """Priors as a calibration, without anything learned from runs."""
    return Calibration(
        name=name or priors.name,
        retrieved=retrieved or priors.retrieved,
        source=priors.source,
        fitted_to_carried_runs=carried,
        ranges=priors.ranges,
        parameters=tuple(row.as_row() for row in priors.parameters),
    )


def priors_from(calibration: Calibration) -> Priors:
    """What a calibration leaves to be found: its rows as priors, each as sure as its standard error says.

    What is new is what the runs of one place have in common, by the classes that the catalog's priors name for it.
    """
    known = load_priors()
    fitted = {entry.name for entry in (*known.classes, *known.own_classes)}
    classes = known.own_classes
    return Priors(
        name=calibration.name,
        retrieved=calibration.retrieved,
        source=calibration.source,
        parameters=tuple(_prior_from(row, free=row.name in fitted) for row in calibration.parameters),
        classes=classes,
        ranges=calibration.ranges,
    )


def _prior_from(row: ParameterRow, *, free: bool) -> Prior:
    spread = None
    general = not any(getattr(row, name) for name in KEY_FIELDS)
    if free and row.value > 0 and general and row.standard_error is None:
        spread = _SPREAD_OF_ALL
    elif free and row.value > 0:
        known = row.standard_error is not None
        spread = max((row.standard_error or 0.0) / row.value, _LEAST_SPREAD) if known else _USUAL_SPREAD
    return Prior(**row.model_dump(), spread=spread)
