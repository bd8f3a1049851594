"""The catalog has every accelerator and cluster that published tables of hardware list, under their names."""

from __future__ import annotations

import pytest

from costmodel.catalog.cluster_catalog import accelerator_names, cluster_names, load_accelerator, load_cluster
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.errors import UnknownName

# Name in the table of accelerators, memory in GB and dense bf16 (Volta: fp16) TFLOP/s of one device there.
ACCELERATORS = """
V100-SXM2-32 32 125 | A100-SXM4-40 40 312 | A100-SXM4-80 80 312 | A100-PCIe-80 80 312 | A800-SXM4-80 80 312
H100-SXM5-80 80 989 | H100-PCIe-80 80 756 | H100-NVL 94 835 | H800-SXM5-80 80 989 | H20-SXM-96 96 148
H200-SXM-141 141 989 | GH200-96 96 989 | GH200-144 141 989 | B200-SXM-180 180 2250 | GB200 186 2500
B300-SXM-288 268 2250 | GB300 288 2500 | L40S 48 362 | L4 24 121 | A10G 24 70 | RTX4090 24 165.2 | MI250X 64 191.5
MI300X 192 1307.4 | MI325X 256 1307.4 | MI355X 288 2500 | TPUv4 32 275 | TPUv5e 16 197 | TPUv5p 95 459 | TPUv6e 32 918
Gaudi2 96 432 | Gaudi3 128 1677 | Trainium1 32 190 | Trainium2 96 667
"""

# Name in the table of clusters: accelerator there, devices per node and in a scale-up domain, Gbit/s per device to the
# outside. Two devices or SKUs of one row are two lines here.
CLUSTERS = """
DGX/HGX H100: H100-SXM5-80 8 8 400
DGX A100: A100-SXM4-80 8 8 200
HGX H200: H200-SXM-141 8 8 400
DGX/HGX B200: B200-SXM-180 8 8 400
DGX B300: B300-SXM-288 8 8 800
GB200 NVL72 (CX7): GB200 4 72 400
GB200 NVL72 (2x NIC): GB200 4 72 800
GB300 NVL72: GB300 4 72 800
p4d.24xlarge: A100-SXM4-40 8 8 50
p4de.24xlarge: A100-SXM4-80 8 8 50
p5.48xlarge: H100-SXM5-80 8 8 400
p5e.48xlarge: H200-SXM-141 8 8 400
p5en.48xlarge: H200-SXM-141 8 8 400
p6-b200.48xlarge: B200-SXM-180 8 8 400
p6-b300.48xlarge: B300-SXM-288 8 8 800
p6e-gb200.36xlarge (u-p6e-gb200x72): GB200 4 72 400
trn1.32xlarge: Trainium1 16 16 50
trn1n.32xlarge: Trainium1 16 16 100
trn2.48xlarge: Trainium2 16 16 200
ND96asr_v4: A100-SXM4-40 8 8 200
ND96amsr_A100_v4: A100-SXM4-80 8 8 200
ND96isr_H100_v5: H100-SXM5-80 8 8 400
ND96isr_H200_v5: H200-SXM-141 8 8 400
ND128isr_NDR_GB200_v6: GB200 4 72 400
a2-highgpu-8g: A100-SXM4-40 8 8 12.5
a2-megagpu-16g: A100-SXM4-40 16 16 6.25
a2-ultragpu-8g: A100-SXM4-80 8 8 12.5
a3-highgpu-8g: H100-SXM5-80 8 8 100
a3-edgegpu-8g: H100-SXM5-80 8 8 75
a3-megagpu-8g: H100-SXM5-80 8 8 200
a3-ultragpu-8g: H200-SXM-141 8 8 400
a4-highgpu-8g: B200-SXM-180 8 8 400
a4x-highgpu-4g: GB200 4 72 400
a4x-maxgpu-4g-metal: GB300 4 72 800
BM.GPU4.8: A100-SXM4-40 8 8 200
BM.GPU.B4.8: A100-SXM4-40 8 8 200
BM.GPU.H100.8: H100-SXM5-80 8 8 400
BM.GPU.H200.8: H200-SXM-141 8 8 400
BM.GPU.B300.8: B300-SXM-288 8 8 800
BM.GPU.MI300X.8: MI300X 8 8 400
BM.GPU.MI355x.v0.8: MI355X 8 8 400
BM.GPU.MI355x.v1.8: MI355X 8 8 400
CoreWeave H100: H100-SXM5-80 8 8 400
CoreWeave GB200 NVL72: GB200 4 72 400
gpu-h100-sxm 8x: H100-SXM5-80 8 8 400
gpu-h200-sxm 8x: H200-SXM-141 8 8 400
gpu-b200-sxm 8x: B200-SXM-180 8 8 400
1-Click B200: B200-SXM-180 8 8 400
gpu_8x_v100: V100-SXM2-16 8 8 3.125
HLS-Gaudi2: Gaudi2 8 8 300
HLS-Gaudi3: Gaudi3 8 8 600
"""


@pytest.mark.parametrize("row", [row.strip() for line in ACCELERATORS.strip().splitlines() for row in line.split("|")])
def test_every_accelerator_of_the_table_is_there(row: str) -> None:
    name, memory, tflops = row.split()
    found = recognise_accelerator(name)
    assert found.how == "exact"
    spec = found.accelerator
    # A printed GB is now 10^9, now 2^30 bytes, and a driver keeps some.
    assert float(memory) * 0.95e9 <= spec.memory_bytes <= float(memory) * 1.005 * 2**30
    assert spec.peak("fp16" if spec.family == "volta" else "bf16") == float(tflops) * 1e12


@pytest.mark.parametrize("line", CLUSTERS.strip().splitlines())
def test_every_cluster_of_the_table_is_there(line: str) -> None:
    name, _, rest = line.rpartition(": ")
    accelerator, node, domain, gbit = rest.split()
    cluster = load_cluster(name)
    assert cluster.accelerator == recognise_accelerator(accelerator).accelerator
    assert (cluster.devices_per_node, cluster.scale_up_devices) == (int(node), int(domain))
    assert cluster.tiers[-1].bandwidth_bytes_per_s * 8 == float(gbit) * 1e9


# Seen in published runs or users' reports.
@pytest.mark.parametrize(
    ("name", "memory_gib", "bandwidth", "precision", "tflops"),
    [
        ("v100-sxm2-16gb", 15.8, 900e9, "fp16", 125),
        ("h100-sxm5-96gb", 95.6, 2400e9, "bf16", 989),
        ("h100-nvl-94gb", 93.6, 3900e9, "bf16", 835),
        ("rtx3090", 24, 936.2e9, "bf16", 71),
        ("rtx-a6000", 48, 768e9, "bf16", 154.8),
        ("quadro-rtx-8000", 47.5, 672e9, "fp16", 130.5),
        ("a10", 22.5, 600e9, "bf16", 125),
        ("a40", 45, 696e9, "bf16", 149.7),
        ("a100-pcie-40gb", 40, 1555e9, "bf16", 312),
        ("h20-sxm-141gb", 140.4, 4800e9, "bf16", 148),
        ("tpu-v3", 32, 900e9, "bf16", 123),
        ("tpu-v7x", 192, 7380e9, "bf16", 2307),
        ("tpu-v7x", 192, 7380e9, "fp8", 4614),
        ("ascend-910b-64gb", 60.96, 1600e9, "bf16", 280),
    ],
)
def test_devices_of_runs(name: str, memory_gib: float, bandwidth: float, precision: str, tflops: float) -> None:
    spec = load_accelerator(name)
    assert spec.memory_bytes / 2**30 == pytest.approx(memory_gib, rel=0.01)
    assert spec.memory_bandwidth_bytes_per_s == bandwidth
    assert spec.peak(precision) == tflops * 1e12  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("core", "chip", "cores"),
    [
        ("trainium1-neuroncore", "trainium1", 2),
        ("trainium2-neuroncore", "trainium2", 8),
        ("tpu-v3-core", "tpu-v3", 2),
        ("tpu-v7x-core", "tpu-v7x", 2),
    ],
)
def test_a_core_is_its_share_of_a_chip(core: str, chip: str, cores: int) -> None:
    part, whole = load_accelerator(core), load_accelerator(chip)
    assert part.memory_bytes * cores == whole.memory_bytes
    assert part.memory_bandwidth_bytes_per_s * cores == whole.memory_bandwidth_bytes_per_s
    assert {p: f * cores for p, f in part.peak_flops_per_s.items()} == dict(whole.peak_flops_per_s)
    node, chips = load_cluster(part.typical_cluster), load_cluster(whole.typical_cluster)
    assert node.devices_per_node == cores * chips.devices_per_node
    for inner, outer in zip(node.tiers, chips.tiers, strict=True):
        assert inner.bandwidth_bytes_per_s * cores == pytest.approx(outer.bandwidth_bytes_per_s)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("DGX H100", "dgx-h100"),
        ("HGX H100", "dgx-h100"),
        ("hgx_h200", "dgx-h200"),
        ("Standard_ND96isr_H100_v5", "ND96isr_H100_v5"),
        ("gb200 nvl72", "gb200-nvl72"),
        ("GB300-NVL72", "gb300-nvl72"),
        ("A3 MegaGPU 8g", "a3-megagpu-8g"),
        ("P5 48xlarge", "p5.48xlarge"),
        ("bm gpu h100 8", "BM.GPU.H100.8"),
        ("DGX-2", "dgx-2"),
        ("TPU v5e", "tpu-v5e"),
        ("Lambda gpu_8x_v100", "lambda-gpu-8x-v100"),
    ],
)
def test_clusters_are_found_by_other_spellings(spelling: str, name: str) -> None:
    assert load_cluster(spelling).name == name


def test_a_spelling_stands_for_one_cluster_only() -> None:
    letters = {name: "".join(filter(str.isalnum, name.lower())) for name in cluster_names()}
    aliases = ["".join(filter(str.isalnum, a.lower())) for name in cluster_names() for a in load_cluster(name).aliases]
    # An alias may be its own cluster's name in other words, never that of another.
    assert len(set(letters.values())) == len(letters)
    assert len(aliases) == len(set(aliases))
    for name in cluster_names():
        for alias in load_cluster(name).aliases:
            assert load_cluster(alias).name == name
    with pytest.raises(UnknownName, match="dgx-h100"):
        load_cluster("DGX H10")


def test_devices_that_are_no_data_sheet_s_say_so() -> None:
    for name in accelerator_names():
        spec = load_accelerator(name)
        assert "recalled" not in spec.source or spec.caveat, name
