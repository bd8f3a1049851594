"""A calibration: named parameters, each keyed by what it was found on, with its standard error and source.

A parameter row applies to an accelerator, a family of them, or any; to a precision or any; to a framework or any.
``resolve`` picks for every parameter the row that says most about the case at hand, and reports what it had to fall
back to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from costmodel.arrays import Num, num
from costmodel.catalog import folders
from costmodel.catalog.documents import SUFFIXES, read_mapping
from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.base import Frozen, FrozenMap, IsoDate, NonNegativeFloat
from costmodel.spec.validation import build

Provenance = Literal["analytic", "calibrated", "measured"]
_CERTAINTY: tuple[Provenance, ...] = ("analytic", "calibrated", "measured")
DEFAULT_CALIBRATION = "starting-2026-11"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Every parameter that terms read. Fractions are of the peak or of one; the rest carries its unit in the name.

    Attributes:
        gemm_efficiency: share of the peak that a large aligned GEMM reaches.
        gemm_k_half, gemm_mn_half: size at which the inner, or the smaller outer, dimension costs half the efficiency.
        gemm_alignment, misaligned_factor: a per-device dimension off this multiple runs this many times slower.
        grouped_gemm_factor: slowdown of expert GEMMs against one dense GEMM of the same size.
        attention_efficiency: share of the peak reached by the attention core on the FLOPs of a causal mask.
        pointwise_efficiency: share of the memory bandwidth that elementwise and norm kernels reach.
        loss_traffic_bytes: bytes moved per logit by softmax, cross entropy and their gradient.
        scale_up_efficiency, scale_out_efficiency, pcie_efficiency: share of the link rate that a large ring reaches,
            by kind.
        in_network_gain: all-reduce speed-up where the scale-up switch reduces (NVLS), from in_network_min_ranks
            ranks upwards.
        scale_up_latency_s, scale_out_latency_s: start of one collective, by the outermost tier it reaches; PCIe
            counts as scale-up.
        scale_up_hop_s, scale_out_hop_s: one step of a ring.
        compute_multiplier: how much longer a framework's kernels take than the bare ones.
        tp_exposed_share, ep_exposed_share, cp_exposed_share: share of the communication that no overlap hides.
        pp_exposed_share, pp_exposed_share_interleaved: share of a stage boundary's transfer that delays the stage.
        dp_overlap_share: share of the backward (forward) pass of the last (first) micro-batch that hides reductions
            (gathers).
        fsdp_overlap_share: share of a layer's own compute that hides its gathers and reductions under ZeRO-2/3.
        gradient_wire_bytes, parameter_wire_bytes: bytes per parameter on the wire in reduction and gather.
        fixed_step_s, fixed_microbatch_s, fixed_chunk_s: host work per step, per micro-batch, and for each of its
            chunks.
        host_layer_s: least time of one layer, forward and backward, for one micro-batch: the host's launches.
        host_pipeline_layer_s, host_pipeline_layer_tp_s: the same in a pipeline that leaves the scale-up domain, and
            what every tensor-parallel rank adds to it.
        optimizer_traffic_bytes: bytes that the optimizer step moves per parameter it owns.
        expert_imbalance: tokens of the fullest device over the mean.
        activation_coefficient: saved activations as measured over as counted.
        logits_bytes: bytes per logit alive at the peak of the loss.
        overhead_bytes: allocated memory that is neither state nor activations (communicators, workspaces).
        reserved_over_allocated: the allocator's pool over what is alive in it at the peak.
        context_bytes: device memory that a process holds outside of the allocator.
        usable_fraction: share of the device memory up to which runs neither failed nor thrashed.
        time_relative_error: half width of the 90 % interval of step time, relative.
    """

    gemm_efficiency: Num
    gemm_k_half: Num
    gemm_mn_half: Num
    gemm_launch_s: Num
    gemm_alignment: Num
    misaligned_factor: Num
    grouped_gemm_factor: Num
    attention_efficiency: Num
    pointwise_efficiency: Num
    loss_traffic_bytes: Num
    scale_up_efficiency: Num
    scale_out_efficiency: Num
    pcie_efficiency: Num
    in_network_gain: Num
    in_network_min_ranks: Num
    scale_up_latency_s: Num
    scale_out_latency_s: Num
    scale_up_hop_s: Num
    scale_out_hop_s: Num
    compute_multiplier: Num
    tp_exposed_share: Num
    ep_exposed_share: Num
    cp_exposed_share: Num
    pp_exposed_share: Num
    pp_exposed_share_interleaved: Num
    dp_overlap_share: Num
    fsdp_overlap_share: Num
    gradient_wire_bytes: Num
    parameter_wire_bytes: Num
    fixed_step_s: Num
    fixed_microbatch_s: Num
    fixed_chunk_s: Num
    host_layer_s: Num
    host_pipeline_layer_s: Num
    host_pipeline_layer_tp_s: Num
    optimizer_traffic_bytes: Num
    expert_imbalance: Num
    activation_coefficient: Num
    logits_bytes: Num
    overhead_bytes: Num
    reserved_over_allocated: Num
    context_bytes: Num
    usable_fraction: Num
    time_relative_error: Num


PARAMETER_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Parameters))


# Shares of what hardware can do at most.
_SHARES_OF_ONE = frozenset(
    {
        "gemm_efficiency",
        "attention_efficiency",
        "pointwise_efficiency",
        "scale_up_efficiency",
        "scale_out_efficiency",
        "pcie_efficiency",
        "dp_overlap_share",
        "fsdp_overlap_share",
        "usable_fraction",
    }
)
# Others divide something, or scale a whole term.
_MAY_BE_ZERO = frozenset(name for name in PARAMETER_NAMES if name.endswith(("_s", "_share", "_bytes", "_half")))


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


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The parameters for one case.

    Attributes:
        provenance: how certain each parameter is.
        general_time_error: the relative error of step time where nothing is known of the case.
        fallbacks: decisive parameters that only had a general row, while other accelerators or families have their own.
    """

    parameters: Parameters
    provenance: Mapping[str, Provenance]
    fallbacks: tuple[str, ...]
    general_time_error: float

    def certainty(self, names: Iterable[str] = ()) -> Provenance:
        """Of the least certain among the parameters that decide every plan and those of ``names``."""
        return min((self.provenance[name] for name in (*_DECISIVE, *names)), key=_CERTAINTY.index)


class Calibration(Frozen):
    """A named set of parameter rows."""

    name: str
    retrieved: IsoDate
    source: str
    parameters: tuple[ParameterRow, ...]

    def __hash__(self) -> int:
        # Of what tells calibrations apart in practice: hashing all of every row would cost much of what caches save.
        return hash((self.name, tuple(row.value for row in self.parameters)))

    def resolve(self, *, accelerator: str, family: str, precision: str, framework: str) -> Resolved:
        """The parameters for one accelerator, precision recipe and framework.

        A row for the accelerator beats one for its family beats a general one; then a row for the precision beats one
        without; then one for the framework.

        Raises:
            InvalidInput: for some parameter no row is about the case.
        """
        return _resolve(self, accelerator, family, precision, framework)


_DECISIVE = ("gemm_efficiency", "attention_efficiency", "pointwise_efficiency", "compute_multiplier")


# Thousands of runs are priced at once, on a few devices in a few precisions.
@lru_cache(maxsize=1024)
def _resolve(calibration: Calibration, accelerator: str, family: str, precision: str, framework: str) -> Resolved:
    best: dict[str, tuple[tuple[int, int, int], ParameterRow]] = {}
    for row in calibration.parameters:
        rank = _specificity(row, accelerator, family, precision, framework)
        if rank is not None and (row.name not in best or rank > best[row.name][0]):
            best[row.name] = (rank, row)
    missing = [name for name in PARAMETER_NAMES if name not in best]
    if missing:
        raise InvalidInput("calibration", calibration.name, f"it must give a general row for {', '.join(missing)}")
    provenance = FrozenMap({name: best[name][1].provenance for name in PARAMETER_NAMES})
    general = [row.value for row in calibration.parameters if row.name == "time_relative_error" and _is_general(row)]
    fallbacks = tuple(
        name
        for name in _DECISIVE
        if best[name][0][0] == 0
        and any(row.name == name and (row.accelerator or row.family) for row in calibration.parameters)
    )
    values = {name: _constant(best[name][1].value) for name in PARAMETER_NAMES}
    return Resolved(
        parameters=Parameters(**values),
        provenance=provenance,
        fallbacks=fallbacks,
        general_time_error=max(general, default=float(values["time_relative_error"])),
    )


def _is_general(row: ParameterRow) -> bool:
    return (row.accelerator, row.family, row.precision, row.framework) == (None, None, None, None)


def _constant(value: float) -> Num:
    """A scalar that is shared, so it can't be written to."""
    scalar = num(value)
    scalar.flags.writeable = False
    return scalar


def _specificity(
    row: ParameterRow, accelerator: str, family: str, precision: str, framework: str
) -> tuple[int, int, int] | None:
    """How much of the case the row names; None when it is about another case."""
    if row.accelerator not in (None, accelerator) or row.family not in (None, family):
        return None
    if row.precision not in (None, precision) or row.framework not in (None, framework):
        return None
    hardware = 2 if row.accelerator else 1 if row.family else 0
    return hardware, int(row.precision is not None), int(row.framework is not None)


def stack(parameters: list[Parameters]) -> Parameters:
    """Columns of parameters, one row per entry."""
    return Parameters(**{name: num([getattr(p, name) for p in parameters]) for name in PARAMETER_NAMES})


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
        if row.name in _SHARES_OF_ONE and row.value > 1.0:
            raise InvalidInput(field, row.value, f"{row.name} is a share, at most 1 is possible")
        if row.value == 0.0 and row.name not in _MAY_BE_ZERO:
            raise InvalidInput(field, row.value, f"{row.name} has to be above 0")
    return calibration
