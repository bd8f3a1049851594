"""What a plan runs on: accelerators, and the tiers of network that join them into a cluster.

Everything a device or a network can do at best is written here; how much of it real kernels and collectives reach is
calibration, which lives elsewhere. Bandwidths are bytes per second of one device in one direction: the wire's rate.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from costmodel.errors import InvalidInput
from costmodel.spec.base import Frozen, FrozenMapping, IsoDate, Name, NonNegativeFloat, PositiveFloat, PositiveInt
from costmodel.spec.collective import MeasuredCollective
from costmodel.spec.validation import Unusable

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]
BlockFormat = Literal["fp8-block", "mxfp8", "nvfp4"]
Family = Literal[
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "cdna2",
    "cdna3",
    "cdna4",
    "tpu",
    "gaudi",
    "trainium",
    "ascend",
    "cpu",
]
TierKind = Literal["nvlink", "xgmi", "ici", "neuronlink", "hccs", "pcie", "infiniband", "roce", "efa", "tcp"]

# The kinds that join devices of one scale-up domain. The others are networks, which do so only inside a node (Gaudi).
SCALE_UP_KINDS: frozenset[str] = frozenset({"nvlink", "xgmi", "ici", "neuronlink", "hccs", "pcie"})


# What switches reduce runs above a ring's limit, by a third where it was measured; ten times is another unit.
_IMPLAUSIBLY_FAST = 10.0


def _not_a_flag(value: Any) -> Any:
    """``yes`` in YAML is a boolean, which would otherwise pass for the number 1."""
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    return value


def _in_bytes_per_second(value: float) -> float:
    # No link or memory is this slow: the number was given in another unit.
    if value < 1e6:
        raise ValueError("bytes per second are expected (400 Gbit/s is 50e9, 450 GB/s is 450e9)")
    return value


def _in_flops_per_second(value: float) -> float:
    if value < 1e9:
        raise ValueError("FLOP/s are expected (989 TFLOP/s is 989e12)")
    return value


def _in_bytes(value: int) -> int:
    if value < 2**20:
        raise ValueError("bytes are expected (80 GiB is 85899345920)")
    return value


BytesPerSecond = Annotated[PositiveFloat, BeforeValidator(_not_a_flag), AfterValidator(_in_bytes_per_second)]
FlopsPerSecond = Annotated[PositiveFloat, BeforeValidator(_not_a_flag), AfterValidator(_in_flops_per_second)]
ByteCount = Annotated[PositiveInt, AfterValidator(_in_bytes)]


class AcceleratorSpec(Frozen):
    """One device as the framework sees it (one GPU, one TPU chip, one GCD of a dual-die card).

    Attributes:
        family: what calibration falls back to when it doesn't know this very device.
        memory_bytes: the total that the driver reports, not the number on the box.
        memory_note: what ``memory_bytes`` is based on.
        peak_flops_per_s: dense peak of each precision that the device has hardware for.
        block_formats: products with a scale for every block of elements that it has beside those: ``fp8-block`` blocks
            of 128 (DeepSeek-V3), ``mxfp8`` of 32, ``nvfp4`` of 16.
        aliases: other spellings people use for it; unique over the catalog.
        typical_cluster: the catalog cluster in which such devices usually sit; that of its family when empty.
    """

    name: Name
    vendor: str
    family: Family
    memory_bytes: ByteCount
    memory_note: str = ""
    memory_bandwidth_bytes_per_s: BytesPerSecond
    peak_flops_per_s: Annotated[FrozenMapping[Precision, FlopsPerSecond], Field(min_length=1)]
    block_formats: tuple[BlockFormat, ...] = ()
    source: str
    retrieved: IsoDate = ""
    caveat: str = ""
    aliases: tuple[Name, ...] = ()
    typical_cluster: str = ""

    def peak(self, precision: Precision) -> float:
        """Dense FLOP/s of a precision.

        Raises:
            InvalidInput: the device doesn't have it.
        """
        if precision not in self.peak_flops_per_s:
            raise InvalidInput("precision", precision, f"{self.name} has {self.formats}")
        return self.peak_flops_per_s[precision]

    @property
    def formats(self) -> str:
        """What the device computes in, in words."""
        blocks = f", in blocks {', '.join(self.block_formats)}" if self.block_formats else ""
        return ", ".join(self.peak_flops_per_s) + blocks


class TierSpec(Frozen):
    """One level of the network: the devices that share it, and how fast each of them can send through it.

    Attributes:
        group_devices: devices inside one unit of this tier; None on the outermost tier, which joins the whole cluster.
        bandwidth_bytes_per_s: per device, one direction, before oversubscription.
        in_network_reduction: whether the switches can reduce (NVLS, SHARP).
    """

    name: Name
    kind: TierKind
    group_devices: Annotated[int, Field(strict=True, ge=2)] | None = None
    bandwidth_bytes_per_s: BytesPerSecond
    oversubscription: Annotated[float, BeforeValidator(_not_a_flag), Field(ge=1)] = 1.0
    in_network_reduction: bool = False

    @property
    def effective_bandwidth_bytes_per_s(self) -> float:
        """What is left when every device sends at once."""
        return self.bandwidth_bytes_per_s / self.oversubscription


class ClusterSpec(Frozen):
    """Devices of one kind, in nodes, joined by tiers of network listed from the innermost outwards.

    Attributes:
        devices_per_node: devices under one operating system; may be fewer than the innermost tier joins (NVL72: 4 of
            72).
        host_bandwidth_bytes_per_s: between one device and its host's memory, one direction; None when unknown.
        max_devices: how many devices there are; None when as many as asked for can be had.
        collectives: sweeps measured on this very cluster, instead of what was published for such links.
        aliases: other spellings people use for it; unique over the catalog.
    """

    name: Name
    accelerator: AcceleratorSpec
    devices_per_node: PositiveInt
    tiers: tuple[TierSpec, ...]
    host_bandwidth_bytes_per_s: BytesPerSecond | None = None
    host_memory_bytes_per_node: ByteCount | None = None
    max_devices: PositiveInt | None = None
    price_per_device_hour: Annotated[NonNegativeFloat, BeforeValidator(_not_a_flag)] | None = None
    price_note: str = ""
    collectives: tuple[MeasuredCollective, ...] = ()
    source: str
    retrieved: IsoDate = ""
    caveat: str = ""
    aliases: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _tiers_nest(self) -> ClusterSpec:
        if not self.tiers:
            if self.max_devices != 1:
                raise Unusable("tiers", [], "at least one tier is needed, unless max_devices is 1")
            return self
        for index, tier in enumerate(self.tiers[:-1]):
            if tier.group_devices is None:
                raise Unusable(f"tiers[{index}].group_devices", None, "only the outermost (last) tier may leave it out")
        groups = [tier.group_devices for tier in self.tiers if tier.group_devices is not None]
        for index, (inner, outer) in enumerate(pairwise(groups), start=1):
            if outer <= inner or outer % inner:
                raise Unusable(
                    f"tiers[{index}].group_devices",
                    outer,
                    f"it has to be a larger multiple of the {inner} of the tier inside it",
                )
        return self

    @model_validator(mode="after")
    def _outermost_tier_reaches_every_device(self) -> ClusterSpec:
        reach = self.tiers[-1].group_devices if self.tiers else None
        if reach is not None and (self.max_devices is None or self.max_devices > reach):
            expected = f"the outermost tier has to join all of max_devices ({self.max_devices}); leave it out for all"
            raise Unusable(f"tiers[{len(self.tiers) - 1}].group_devices", reach, expected)
        return self

    @model_validator(mode="after")
    def _nodes_and_groups_nest(self) -> ClusterSpec:
        for index, tier in enumerate(self.tiers):
            group = tier.group_devices
            if group is not None and group % self.devices_per_node and self.devices_per_node % group:
                expected = f"it has to divide, or be a multiple of, devices_per_node ({self.devices_per_node})"
                raise Unusable(f"tiers[{index}].group_devices", group, expected)
        if self.max_devices is not None and self.devices_per_node > self.max_devices:
            expected = f"it can't exceed max_devices ({self.max_devices})"
            raise Unusable("devices_per_node", self.devices_per_node, expected)
        return self

    @model_validator(mode="after")
    def _collectives_are_of_this_network(self) -> ClusterSpec:
        seen: dict[tuple[str, int, int], int] = {}
        for index, measured in enumerate(self.collectives):
            field, inside = f"collectives[{index}]", measured.ranks // measured.domains
            if inside > self.scale_up_devices:
                expected = f"{inside} of them in one scale-up domain, and one has {self.scale_up_devices}"
                raise Unusable(f"{field}.ranks", measured.ranks, expected)
            first = seen.setdefault((measured.op, measured.ranks, measured.domains), index)
            if first != index:
                raise Unusable(f"{field}.op", measured.op, f"collectives[{first}] has the same ranks and domains")
            most, found = _IMPLAUSIBLY_FAST * self.tiers[0].bandwidth_bytes_per_s, measured.bus_bytes_per_s
            if found > most:
                expected = f"{found:.3g} bytes/s and more than {most:.3g} on the bus: microseconds are expected"
                raise Unusable(f"{field}.points", measured.points[-1][1], expected)
        return self

    @property
    def scale_up_devices(self) -> int:
        """Devices of one scale-up domain: 8 in a DGX, 72 in an NVL72, 1 where only a network joins the devices."""
        if not self.tiers:
            return 1
        group = self.tiers[0].group_devices or self.max_devices
        if group is None or (self.tiers[0].kind not in SCALE_UP_KINDS and group > self.devices_per_node):
            return 1
        return group

    def check_devices(self, devices: int) -> None:
        """Accepts as many devices as the cluster has.

        Raises:
            InvalidInput: it doesn't have that many, or fewer than 1 are asked for.
        """
        if devices < 1:
            raise InvalidInput("devices", devices, "at least 1 is needed")
        if self.max_devices is not None and devices > self.max_devices:
            raise InvalidInput("devices", devices, f"{self.name} has {self.max_devices}")
