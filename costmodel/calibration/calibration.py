"""A calibration: named parameters, each keyed by what it was found on, with its standard error and source.

A parameter row applies to an accelerator, a family of them, or any; to a precision or any; to a framework or any.
``resolve`` picks for every parameter the row that says most about the case at hand, and reports what it had to fall
back to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from costmodel.arrays import Num, num
from costmodel.calibration.basis import Basis, bases_of
from costmodel.calibration.keys import specificity
from costmodel.calibration.parameters import MAY_BE_ZERO, PARAMETER_NAMES, SHARES_OF_ONE, Parameters
from costmodel.calibration.ranges import RunRange
from costmodel.catalog import folders
from costmodel.catalog.documents import SUFFIXES, read_mapping
from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.base import Frozen, FrozenMap, IsoDate, NonNegativeFloat
from costmodel.spec.validation import build

Provenance = Literal["analytic", "calibrated", "measured"]
_CERTAINTY: tuple[Provenance, ...] = ("analytic", "calibrated", "measured")
DEFAULT_CALIBRATION = "published-2026-11"


class ParameterRow(Frozen):
    """One value with what it applies to (None: anything), where it comes from and how sure it is."""

    name: str
    value: NonNegativeFloat
    standard_error: NonNegativeFloat | None = None
    accelerator: str | None = None
    family: str | None = None
    precision: str | None = None
    framework: str | None = None
    provenance: Provenance
    source: str


def rounded(value: float) -> float:
    """As fitted values are kept: to the four digits that their errors leave."""
    return float(f"{value:.4g}")


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The parameters for one case.

    Attributes:
        provenance: how certain each parameter is.
        borrowed: parameters whose row is for the precision that this one is calibrated like.
        general_time_error: the relative error of step time where nothing is known of the case.
        fallbacks: decisive parameters that only had a general row, while other accelerators or families have their own.
        bases: what the decisive parameters rest on.
    """

    parameters: Parameters
    provenance: Mapping[str, Provenance]
    fallbacks: tuple[str, ...]
    borrowed: tuple[str, ...]
    bases: tuple[Basis, ...]
    general_time_error: float

    def certainty(self, names: Iterable[str] = ()) -> Provenance:
        """Of the least certain among the parameters that decide every plan and those of ``names``."""
        return min((self.provenance[name] for name in (*_DECISIVE, *names)), key=_CERTAINTY.index)


class Calibration(Frozen):
    """A named set of parameter rows.

    Attributes:
        fitted_to_carried_runs: whether the runs that ship with the planner went into it, so that its errors on them
            say little of others.
        ranges: what the runs were like that it was fitted to; empty where runs went into it and nobody knows which.
    """

    name: str
    retrieved: IsoDate
    source: str
    fitted_to_carried_runs: bool = False
    ranges: tuple[RunRange, ...] = ()
    parameters: tuple[ParameterRow, ...]

    def __hash__(self) -> int:
        return self.hash_of_values

    @cached_property
    def hash_of_values(self) -> int:
        """Of what tells calibrations apart in practice, taken once: caches ask for it thousands of times a search."""
        return hash((self.name, tuple(row.value for row in self.parameters)))

    def resolve(
        self, *, accelerator: str, family: str, precision: str, framework: str, precision_like: str | None = None
    ) -> Resolved:
        """The parameters for one accelerator, precision recipe and framework.

        A row for the accelerator beats one for its family beats a general one; then a row for the precision beats one
        for ``precision_like`` beats one without; then one for the framework.

        Raises:
            InvalidInput: for some parameter no row is about the case.
        """
        return _resolve(self, accelerator, family, (precision, precision_like), framework)


_DECISIVE = ("gemm_efficiency", "attention_efficiency", "pointwise_efficiency", "compute_multiplier")


# Thousands of runs are priced at once, on a few devices in a few precisions.
@lru_cache(maxsize=1024)
def _resolve(
    calibration: Calibration, accelerator: str, family: str, precisions: tuple[str, str | None], framework: str
) -> Resolved:
    best: dict[str, tuple[tuple[int, int, int], ParameterRow]] = {}
    for row in calibration.parameters:
        rank = specificity(row, accelerator, family, precisions, framework)
        if rank is not None and (row.name not in best or rank > best[row.name][0]):
            best[row.name] = (rank, row)
    missing = [name for name in PARAMETER_NAMES if name not in best]
    if missing:
        raise InvalidInput("calibration", calibration.name, f"it must give a general row for {', '.join(missing)}")
    general = [row.value for row in calibration.parameters if row.name == "time_relative_error" and _is_general(row)]
    fallbacks = tuple(
        name
        for name in _DECISIVE
        if _is_general(best[name][1])
        and any(row.name == name and (row.accelerator or row.family) for row in calibration.parameters)
    )
    # What others of its kind showed is not known of this one.
    provenance: dict[str, Provenance] = {
        name: "analytic" if name in fallbacks else best[name][1].provenance for name in PARAMETER_NAMES
    }
    values = {name: _constant(best[name][1].value) for name in PARAMETER_NAMES}
    return Resolved(
        parameters=Parameters(**values),
        provenance=FrozenMap(provenance),
        fallbacks=fallbacks,
        borrowed=tuple(name for name in PARAMETER_NAMES if best[name][1].precision not in (None, precisions[0])),
        bases=bases_of({name: row for name, (_, row) in best.items()}, _telling(best)),
        general_time_error=max(general, default=float(values["time_relative_error"])),
    )


def _telling(best: Mapping[str, tuple[object, ParameterRow]]) -> tuple[str, ...]:
    """The decisive parameters, and the level of all terms where a place has one of its own."""
    return (*_DECISIVE, *(name for name in ("time_level",) if not _is_general(best[name][1])))


def _is_general(row: ParameterRow) -> bool:
    return (row.accelerator, row.family, row.precision, row.framework) == (None, None, None, None)


def _constant(value: float) -> Num:
    """A scalar that is shared, so it can't be written to."""
    scalar = num(value)
    scalar.flags.writeable = False
    return scalar


def calibration_names() -> tuple[str, ...]:
    """Names of the calibrations in the catalog."""
    return folders.names("calibration")


def load_calibration(name_or_path: str = DEFAULT_CALIBRATION) -> Calibration:
    """A calibration of the catalog by name, or one from a YAML or JSON file.

    Raises:
        UnknownName: neither a name in the catalog nor a file; or a row is for no parameter there is.
        UnreadableFile: the file is absent or broken.
        InvalidInput: a field of the file is wrong.
    """
    if folders.find("calibration", name_or_path) is not None:
        return _named(name_or_path.strip().lower(), folders.user_dir())
    if name_or_path.lower().endswith(SUFFIXES):
        return _read(folders.expanded(name_or_path, "calibration"))
    raise UnknownName("calibration", name_or_path, calibration_names(), hint="or the path of a YAML or JSON file")


def named_calibration(name: str) -> Calibration:
    """The calibration of that catalog name. Never opens a file that the name points at, so a request may choose it.

    Raises:
        UnknownName: it is not in the catalog.
    """
    if folders.find("calibration", name) is None:
        raise UnknownName("calibration", name, calibration_names())
    return load_calibration(name)


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=16)
def _named(name: str, user_dir: Path | None) -> Calibration:
    entry = folders.find("calibration", name)
    assert entry is not None, "load_calibration looks before it asks"
    return _read(entry.file)


def _read(file: Traversable) -> Calibration:
    calibration = build(Calibration, read_mapping(file, "calibration"), "calibration")
    unknown = {row.name for row in calibration.parameters} - set(PARAMETER_NAMES)
    if unknown:
        raise UnknownName("calibration.parameters.name", min(unknown), PARAMETER_NAMES)
    for position, row in enumerate(calibration.parameters):
        field = f"calibration.parameters[{position}].value"
        if row.name in SHARES_OF_ONE and row.value > 1.0:
            raise InvalidInput(field, row.value, f"{row.name} is a share, at most 1 is possible")
        if row.value == 0.0 and row.name not in MAY_BE_ZERO:
            raise InvalidInput(field, row.value, f"{row.name} has to be above 0")
    return calibration
