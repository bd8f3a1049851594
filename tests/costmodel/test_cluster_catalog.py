"""The packaged accelerators and clusters against published figures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from importlib.resources.abc import Traversable
from typing import Any

import pytest

from costmodel.catalog import accelerator_catalog, cluster_catalog, entries
from costmodel.catalog.cluster_catalog import accelerator_names, cluster_names, load_accelerator, load_cluster
from costmodel.catalog.documents import read_mapping
from costmodel.errors import InvalidInput, UnknownName

MIB = 2**20


@pytest.mark.parametrize("name", cluster_names())
def test_every_packaged_cluster_loads_and_says_where_it_is_from(name: str) -> None:
    spec = load_cluster(name)
    assert spec.name == name
    assert spec.source not in ("", "given by the user")
    assert date.fromisoformat(spec.retrieved) <= date(2026, 11, 29)
    assert (spec.price_per_device_hour is None) == (spec.price_note == "")


@pytest.mark.parametrize("name", accelerator_names())
def test_every_packaged_accelerator_loads_and_says_where_it_is_from(name: str) -> None:
    spec = load_accelerator(name)
    assert spec.name == name
    assert spec.source not in ("", "given by the user")
    assert spec.memory_note
    assert date.fromisoformat(spec.retrieved) <= date(2026, 11, 29)


def test_an_alias_stands_for_one_accelerator_only() -> None:
    specs = [load_accelerator(name) for name in accelerator_names()]
    spellings = [spelling.lower() for spec in specs for spelling in (spec.name, *spec.aliases)]
    assert len(spellings) == len(set(spellings))


def test_the_contract_s_names_are_there() -> None:
    contract = """dgx-a100-40gb dgx-a100-80gb dgx-h100 dgx-h200 dgx-b200 gb200-nvl72 gb300-nvl72 h800-8x400g
        mi300x-8x400g tpu-v5p p4d.24xlarge p4de.24xlarge p5.48xlarge p5e.48xlarge p5en.48xlarge p6-b200.48xlarge
        a3-highgpu-8g a3-megagpu-8g a3-ultragpu-8g a4-highgpu-8g ND96asr_v4 ND96amsr_A100_v4 ND96isr_H100_v5
        ND96isr_H200_v5 rtx4090-1 rtx4090-8 l40s-8 a100-80gb-1 h100-1 meta-llama3-h100"""
    assert set(contract.split()) <= set(cluster_names())


# Dense peaks and memory bandwidths as the vendors' data sheets print them (half of the figures "with sparsity").
@pytest.mark.parametrize(
    ("name", "precision", "flops_per_s", "bandwidth"),
    [
        ("h100-sxm5-80gb", "bf16", 989e12, 3350e9),  # 528 tensor cores x 512 FMA x 2 x 1.83 GHz
        ("h100-sxm5-80gb", "fp8", 1979e12, 3350e9),
        ("a100-sxm4-80gb", "bf16", 312e12, 2039e9),
        ("a100-sxm4-40gb", "bf16", 312e12, 1555e9),
        ("h200-sxm-141gb", "bf16", 989e12, 4800e9),
        ("b200-sxm-180gb", "bf16", 2250e12, 8000e9),
        ("gb200", "fp8", 5000e12, 8000e9),
        ("mi300x", "bf16", 1307.4e12, 5300e9),
        ("tpu-v5p", "bf16", 459e12, 2765e9),
        ("v100-sxm2-32gb", "fp16", 125e12, 900e9),
        ("rtx4090", "bf16", 165.2e12, 1008e9),
    ],
)
def test_published_peaks(name: str, precision: str, flops_per_s: float, bandwidth: float) -> None:
    spec = load_accelerator(name)
    assert spec.peak(precision) == flops_per_s
    assert spec.memory_bandwidth_bytes_per_s == bandwidth


# Totals printed by nvidia-smi and rocm-smi.
@pytest.mark.parametrize(
    ("name", "memory_bytes"),
    [
        ("h100-sxm5-80gb", 81559 * MIB),
        ("a100-sxm4-80gb", 81920 * MIB),
        ("a100-sxm4-40gb", 40960 * MIB),
        ("h200-sxm-141gb", 143771 * MIB),
        ("b200-sxm-180gb", 183359 * MIB),
        ("gb200", 189471 * MIB),
        ("gb300", 284208 * MIB),
        ("rtx4090", 24564 * MIB),
        ("mi300x", 206141652992),
    ],
)
def test_memory_is_what_the_driver_reports(name: str, memory_bytes: int) -> None:
    assert load_accelerator(name).memory_bytes == memory_bytes


def test_volta_has_no_bf16_and_ampere_no_fp8() -> None:
    with pytest.raises(InvalidInput, match="bf16"):
        load_accelerator("v100").peak("bf16")
    with pytest.raises(InvalidInput, match="fp8"):
        load_accelerator("a100").peak("fp8")


def test_nvlink_is_counted_one_way_and_a_network_per_device() -> None:
    h100 = load_cluster("p5.48xlarge")
    nvlink, network = h100.tiers
    assert nvlink.bandwidth_bytes_per_s == 450e9  # NVLink 4: 18 links of 25 GB/s one way, "900 GB/s" both ways
    assert nvlink.in_network_reduction
    assert network.bandwidth_bytes_per_s * 8 * 8 == 3200e9  # 3200 Gbit/s per node of 8
    assert not network.in_network_reduction
    assert load_cluster("p4d.24xlarge").tiers[1].bandwidth_bytes_per_s * 8 * 8 == 400e9
    assert load_cluster("dgx-a100-80gb").tiers[0].bandwidth_bytes_per_s == 300e9
    assert not load_cluster("dgx-a100-80gb").tiers[0].in_network_reduction
    assert load_cluster("h800-8x400g").tiers[0].bandwidth_bytes_per_s == 200e9


def test_an_nvl72_rack_is_one_scale_up_domain_of_nodes_of_4() -> None:
    for name in ("gb200-nvl72", "gb300-nvl72"):
        rack = load_cluster(name)
        assert (rack.devices_per_node, rack.scale_up_devices) == (4, 72)
    assert load_cluster("dgx-h100").scale_up_devices == 8
    assert load_cluster("h100-1").scale_up_devices == 1


def test_llama_3_cluster_is_oversubscribed_between_pods() -> None:
    # arXiv 2407.21783, section 3.3.1: pods of 3,072 GPUs, 8 of them, 1:7 between pods.
    _, pod, spine = load_cluster("meta-llama3-h100").tiers
    assert (pod.group_devices, pod.effective_bandwidth_bytes_per_s) == (3072, 50e9)
    assert spine.effective_bandwidth_bytes_per_s == pytest.approx(50e9 / 7)
    load_cluster("meta-llama3-h100").check_devices(16_384)


def test_single_boxes_say_how_many_devices_they_have() -> None:
    with pytest.raises(InvalidInput, match="rtx4090-1 has 1"):
        load_cluster("rtx4090-1").check_devices(2)
    assert [tier.kind for tier in load_cluster("rtx4090-8").tiers] == ["pcie"]


def test_names_and_aliases_ignore_case() -> None:
    assert load_cluster("DGX-H100") is load_cluster("dgx-h100")
    assert load_cluster("nd96ASR_v4").name == "ND96asr_v4"
    for spelling in ("H100", "h100-80gb", "NVIDIA H100 80GB HBM3"):
        assert load_accelerator(spelling).name == "h100-sxm5-80gb"


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"cluster: 'dgx-h10' .*dgx-h100"):
        load_cluster("dgx-h10")
    with pytest.raises(UnknownName, match=r"accelerator: 'mi300y' .*mi300x"):
        load_accelerator("mi300y")
    with pytest.raises(UnknownName):
        load_cluster("")


@pytest.mark.parametrize(
    ("text", "said", "names"),
    [
        ("V100", "V100 is an accelerator: clusters with it are ", {"dgx-2", "p3dn.24xlarge", "v100-pcie-8x100g"}),
        ("h20", "H20 is an accelerator: clusters with it are h20-8x400g", {"h20-8x400g"}),
        ("a100", "A100 is an accelerator: clusters with it are ", {"dgx-a100-40gb", "p4de.24xlarge", "a2-ultragpu-8g"}),
        ("NVIDIA A100-SXM4-80GB", "A100 is an accelerator: ", {"dgx-a100-80gb", "ND96amsr_A100_v4"}),
        ("trn2", "Trainium 2 is an accelerator: ", {"trn2.48xlarge", "trn2.48xlarge-neuroncores"}),
        ("v5p-128", "TPU v5p is an accelerator: clusters with it are tpu-v5p", {"tpu-v5p"}),
        ("16xMI300X", "MI300X is an accelerator: ", {"mi300x-8x400g", "BM.GPU.MI300X.8"}),
        ("p5", "p5 is the beginning of p5.48xlarge, p5e", {"p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"}),
        ("a3", "a3 is the beginning of ", {"a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g"}),
        ("Standard_ND96", "Standard_ND96 is the beginning of ", {"ND96asr_v4", "ND96isr_H200_v5"}),
        ("p5.4xlarge", "it speaks of the accelerator h100-sxm5-80gb: clusters with it are ", {"p5.48xlarge"}),
        ("RTX 5090", "RTX 5090 is an accelerator: no cluster has it, a file may put", {"rtx-pro-6000-8x400g"}),
    ],
)
def test_a_device_or_the_beginning_of_a_name_leads_to_clusters(text: str, said: str, names: set[str]) -> None:
    with pytest.raises(UnknownName) as caught:
        load_cluster(text)
    assert str(caught.value).startswith(f"cluster: {text!r} is not usable; {said}")
    assert names <= set(caught.value.nearest) <= set(cluster_names())
    assert "\n" not in str(caught.value)


def test_clusters_of_a_device_that_is_named_in_full_have_that_device() -> None:
    with pytest.raises(UnknownName) as caught:
        load_cluster("NVIDIA A100-SXM4-80GB")
    assert {load_cluster(name).accelerator.name for name in caught.value.nearest} == {"a100-sxm4-80gb"}


# Devices as tables of specifications call them.
TABLES = """V100-SXM2-32 V100-SXM2-16 A100-SXM4-40 A100-SXM4-80 A100-PCIe-80 A800-SXM4-80 H100-SXM5-80 H100-PCIe-80
    H100-NVL H800-SXM5-80 H20-SXM-96 H200-SXM-141 GH200-96 GH200-144 B200-SXM-180 GB200 B300-SXM-288 GB300 L40S L4 A10G
    RTX4090 MI250X MI300X MI325X MI355X TPUv4 TPUv5e TPUv5p TPUv6e Gaudi2 Gaudi3 Trainium1 Trainium2"""


@pytest.mark.parametrize(
    "name",
    TABLES.split(),
)
@pytest.mark.parametrize("spelled", [str, str.lower, lambda name: name.replace("-", " "), lambda name: f" {name} "])
def test_names_of_specification_tables_load(name: str, spelled: Callable[[str], str]) -> None:
    spec = load_accelerator(spelled(name))
    letters = "".join(character for character in name.lower() if character.isalnum())
    assert "".join(character for character in spec.name if character.isalnum()).startswith(letters)


def test_loading_one_cluster_reads_only_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(file: Traversable, field: str) -> dict[str, Any]:
        read.append(file.name)
        return read_mapping(file, field)

    monkeypatch.setattr(entries, "read_mapping", noted)
    cluster_catalog._cluster.cache_clear()
    accelerator_catalog._accelerator.cache_clear()
    load_cluster("dgx-b200")
    assert read == ["dgx-b200.yaml", "b200-sxm-180gb.yaml"]
    load_cluster("dgx-b200")
    assert len(read) == 2
