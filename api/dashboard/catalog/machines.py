"""Accelerators and clusters of the catalog."""

from __future__ import annotations

from api.dashboard.catalog.entry import Cell, Column, Entry, Table, figure, gigabytes_per_s, measure, short, text
from api.dashboard.catalog.tiers import picture_of
from api.dashboard.words import GIB, KINDS
from costmodel.catalog.accelerator_catalog import load_accelerator
from costmodel.catalog.cluster_catalog import cluster_names, named_cluster
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec

_GIGA, _TERA = 1e9, 1e12

ACCELERATOR_COLUMNS = (
    Column(name="Accelerator"),
    Column(name="Vendor"),
    Column(name="Family"),
    Column(name="Memory", unit="GiB", figure=True),
    Column(name="Bandwidth", unit="TB/s", figure=True),
    Column(name="bf16", unit="TFLOP/s", figure=True),
    Column(name="fp8", unit="TFLOP/s", figure=True),
    Column(name="fp4", unit="TFLOP/s", figure=True),
    Column(name="Also called"),
    Column(name="Source"),
)
CLUSTER_COLUMNS = (
    Column(name="Cluster"),
    Column(name="Accelerator"),
    Column(name="Node", unit="devices", figure=True),
    Column(name="Scale-up domain", unit="devices", figure=True),
    Column(name="Inside", unit="GB/s", figure=True),
    Column(name="Network", unit="GB/s", figure=True),
    Column(name="Kind"),
    Column(name="At most", unit="devices", figure=True),
    Column(name="Price", unit="per device hour", figure=True),
    Column(name="Source"),
)


def accelerator_row(name: str) -> tuple[Cell, ...]:
    """The entry in the list."""
    found = load_accelerator(name)
    peaks = found.peak_flops_per_s
    return (
        text(found.name, f"/catalog/accelerators/{name}"),
        text(found.vendor),
        text(found.family),
        figure(found.memory_bytes / GIB, ",.1f"),
        measure(found.memory_bandwidth_bytes_per_s, _TERA),
        measure(peaks.get("bf16") or peaks.get("fp16"), _TERA),
        measure(peaks.get("fp8"), _TERA),
        measure(peaks.get("fp4"), _TERA),
        text(", ".join(found.aliases[:3])),
        text(found.source),
    )


def cluster_row(name: str) -> tuple[Cell, ...]:
    """The entry in the list."""
    found = named_cluster(name)
    inner, outer = _ends(found)
    return (
        text(found.name, f"/catalog/clusters/{name}"),
        text(found.accelerator.name, f"/catalog/accelerators/{found.accelerator.name}"),
        figure(found.devices_per_node),
        figure(found.scale_up_devices),
        measure(None if inner is None else inner.bandwidth_bytes_per_s, _GIGA),
        measure(None if outer is None else outer.effective_bandwidth_bytes_per_s, _GIGA),
        text(", ".join(dict.fromkeys(KINDS[tier.kind] for tier in found.tiers))),
        figure(found.max_devices),
        figure(found.price_per_device_hour, ",.2f"),
        text(found.source),
    )


def accelerator_entry(name: str) -> Entry:
    """The entry's page.

    Raises:
        UnknownName: the catalog has no such accelerator.
    """
    found = load_accelerator(name)
    return Entry(
        kind="accelerators",
        name=found.name,
        about=f"{found.vendor}, of the family {found.family}: {found.memory_bytes / GIB:,.1f} GiB of memory.",
        facts=[
            ("Memory", f"{found.memory_bytes:,} bytes as the driver reports them, {found.memory_bytes / GIB:,.2f} GiB"),
            ("Memory bandwidth", gigabytes_per_s(found.memory_bandwidth_bytes_per_s)),
            *((("Based on", found.memory_note),) if found.memory_note else ()),
            *((("Formats in blocks", ", ".join(found.block_formats)),) if found.block_formats else ()),
        ],
        source=found.source,
        retrieved=found.retrieved,
        tables=[_peaks(found), *_clusters_of(found)],
        caveats=[found.caveat] if found.caveat else [],
        aliases=found.aliases,
    )


def cluster_entry(name: str) -> Entry:
    """The entry's page.

    Raises:
        UnknownName: the catalog has no such cluster.
    """
    found = named_cluster(name)
    accelerator = found.accelerator
    facts = [
        ("Node", f"{found.devices_per_node:,} devices"),
        ("Scale-up domain", f"{found.scale_up_devices:,} devices"),
        ("Memory", f"{accelerator.memory_bytes / GIB:,.1f} GiB a device"),
        ("Devices", "as many as asked for" if found.max_devices is None else f"{found.max_devices:,} at most"),
    ]
    if found.host_bandwidth_bytes_per_s:
        facts.append(("Device to host", f"{gigabytes_per_s(found.host_bandwidth_bytes_per_s)} each way"))
    if found.host_memory_bytes_per_node:
        facts.append(("Host memory", f"{found.host_memory_bytes_per_node / GIB:,.0f} GiB a node"))
    if found.price_per_device_hour is not None:
        price = f"{found.price_per_device_hour:,.2f} per device and hour"
        facts.append(("Price", f"{price} ({found.price_note})" if found.price_note else price))
    if found.collectives:
        facts.append(("Collectives", f"{len(found.collectives)} sweeps measured on this very cluster"))
    return Entry(
        kind="clusters",
        name=found.name,
        about=f"{accelerator.name}, {found.devices_per_node} in a node.",
        facts=facts,
        source=found.source,
        retrieved=found.retrieved,
        tables=[_tiers(found)] if found.tiers else [],
        caveats=[found.caveat] if found.caveat else [],
        aliases=found.aliases,
        links=(
            (f"Accelerator {accelerator.name}", f"/catalog/accelerators/{accelerator.name}"),
            ("Searches on it", f"/searches?cluster={name}"),
        ),
        picture=picture_of(found),
    )


def _peaks(found: AcceleratorSpec) -> Table:
    most = max(found.peak_flops_per_s.values())
    return Table(
        id="peaks",
        title="Dense peaks",
        columns=(
            Column(name="Precision"),
            Column(name="Peak", unit="TFLOP/s", figure=True),
            Column(name="FLOPs for each byte of memory traffic", figure=True),
        ),
        rows=[
            (
                text(precision),
                Cell(text=short(peak / _TERA), figure=True, bar=round(100 * peak / most, 1)),
                figure(peak / found.memory_bandwidth_bytes_per_s, ",.0f"),
            )
            for precision, peak in found.peak_flops_per_s.items()
        ],
        note="A kernel with fewer FLOPs for each byte waits for memory. What kernels reach is calibration.",
    )


def _clusters_of(found: AcceleratorSpec) -> list[Table]:
    clusters = [cluster for cluster in map(named_cluster, cluster_names()) if cluster.accelerator.name == found.name]
    if not clusters:
        return []
    rows = [
        (
            text(cluster.name, f"/catalog/clusters/{cluster.name}"),
            figure(cluster.devices_per_node),
            figure(cluster.scale_up_devices),
            text("yes" if cluster.name == found.typical_cluster else ""),
        )
        for cluster in clusters
    ]
    columns = (
        Column(name="Cluster"),
        Column(name="Node", unit="devices", figure=True),
        Column(name="Scale-up domain", unit="devices", figure=True),
        Column(name="Typical"),
    )
    return [Table(id="clusters", title="Clusters of it", columns=columns, rows=rows)]


def _tiers(found: ClusterSpec) -> Table:
    return Table(
        id="tiers",
        title="Tiers of the network, from the inside out",
        columns=(
            Column(name="Tier"),
            Column(name="Kind"),
            Column(name="Joins", unit="devices", figure=True),
            Column(name="Per device, one way", unit="GB/s", figure=True),
            Column(name="Oversubscribed", figure=True),
            Column(name="When all send", unit="GB/s", figure=True),
            Column(name="Switches reduce"),
        ),
        rows=[
            (
                text(tier.name),
                text(KINDS[tier.kind]),
                Cell(text="all" if tier.group_devices is None else f"{tier.group_devices:,}", figure=True),
                measure(tier.bandwidth_bytes_per_s, _GIGA),
                Cell(text="" if tier.oversubscription == 1 else f"{tier.oversubscription:g} to 1", figure=True),
                measure(tier.effective_bandwidth_bytes_per_s, _GIGA),
                text("yes" if tier.in_network_reduction else "no"),
            )
            for tier in found.tiers
        ],
        note="Rates are those of the wire; how much of them collectives reach is calibration.",
    )


def _ends(found: ClusterSpec) -> tuple[TierSpec | None, TierSpec | None]:
    """The tier of the scale-up domain, and the network beyond it."""
    if not found.tiers:
        return None, None
    inner = found.tiers[0] if found.scale_up_devices > 1 else None
    outer = found.tiers[-1]
    return inner, None if outer is inner else outer
