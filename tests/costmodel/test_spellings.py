"""Accelerators from free text: spellings of drivers, clouds, schedulers and people, and what must not be mistaken."""

from __future__ import annotations

import random
import re
import timeit
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.catalog.cluster_catalog import accelerator_names, cluster_names, load_accelerator, load_cluster
from costmodel.catalog.spelling_words import spelling_words
from costmodel.catalog.spellings import recognise_accelerator
from tests.spellings import by_name

# Spellings that name one entry: texts of published runs and users' reports, device names of drivers and frameworks,
# labels of schedulers, instances of clouds.
EXACT = """
a100-sxm4-80gb: A100-80GB | NVIDIA A100-SXM4-80GB | a100_80gb | gpu:a100_80g:4 | A100-SXM480GB | nvidia-a100-80gb
    | 8xA100-80GB | A100 80G | A100-SXM4-80 | Standard_ND96amsr_A100_v4 | p4de.24xlarge | a2-ultragpu-8g | GPU-A100-80GB
    | gpu_8x_a100_80gb_sxm4 | NVIDIA A100-SXM4-81920MiB | 8 x A100 (80 GB, SXM) | BM.GPU.A100-v2.8 | A100(80GiB)
a100-sxm4-40gb: A100-40GB | A100-40GB?(DGX-A100) | NVIDIA A100-SXM4-40GB | p4d.24xlarge | a2-megagpu-16g | ND96asr_v4
    | nvidia-tesla-a100 | A100 SXM4 40 GB 400W | BM.GPU.B4.8
a100-pcie-80gb: NVIDIA A100 80GB PCIe | A100-PCIe-80 | Standard_NC96ads_A100_v4
a100-pcie-40gb: NVIDIA A100-PCIE-40GB | A100 40G PCI-E
a800-sxm4-80gb: A800-80GB | NVIDIA A800-SXM4-80GB | A800
h100-sxm5-80gb: H100-80GB | NVIDIA H100 80GB HBM3 | NVIDIA-H100-80GB-HBM3 | nvidia-h100-80gb | H100-80GB (A3)
    | gpu:nvidia_h100_80gb_hbm3:4 | p5.48xlarge | a3-megagpu-8g | Standard_ND96isr_H100_v5 | DGX-H100 | h100sxm580gb
    | nvidia-h100-mega-80gb | H100 SXM5 80GB x8
h100-pcie-80gb: NVIDIA H100 PCIe 80GB | H100-PCIe-80
h100-nvl-94gb: NVIDIA H100 NVL | H100-NVL-94GB | Standard_NC40ads_H100_v5 | H100 94GB PCIe
h100-sxm5-96gb: H100 96 GB 500 W | H100-96GB | H100 SXM 94GB | H100 95 GiB
h800-sxm5-80gb: H800 | NVIDIA H800 80GB
h200-sxm-141gb: H200 | H200-141GB | NVIDIA H200 | H200 (A3 Ultra) | p5en.48xlarge | nvidia-h200-141gb | a3-ultragpu-8g
h200-nvl-141gb: NVIDIA H200 NVL
h20-sxm-96gb: H20 96GB | NVIDIA H20 97871MiB
h20-sxm-141gb: NVIDIA H20-3e | H20 141G
gh200-96gb: NVIDIA GH200 480GB | GH200 96GB
gh200-144gb: NVIDIA GH200 144G HBM3e
b200-sxm-180gb: B200 | B200 (180GB class per stated %) | B200 (A4) | B200 (power limited) | B200-180GB
    | NVIDIA B200 192GB | p6-b200.48xlarge | a4-highgpu-8g
b300-sxm-288gb: B300 | NVIDIA B300 SXM6 AC | p6-b300.48xlarge
gb200: GB200 | NVIDIA GB200 | 72 GB200 | GB200 NVL72 | a4x-highgpu-4g | 2xGB200 | Grace-Blackwell GB200
gb300: GB300 | NVIDIA GB300 NVL72 | a4x-maxgpu-4g-metal
v100-sxm2-32gb: V100-32GB | V100-32GB(DGX-2) | V100-32GB? | Tesla V100-SXM2-32GB | DGX-2 (16x V100) | p3dn.24xlarge
    | nvidiateslav100sxm232gb
v100-sxm2-16gb: V100-16GB | Tesla V100-SXM2-16GB | V100-16G | p3.16xlarge
v100-pcie-32gb: Tesla V100-PCIE-32GB
v100-pcie-16gb: Tesla V100-PCIE-16GB | Standard_NC24rs_v3
t4: Tesla T4 | nvidia-tesla-t4 | g4dn.12xlarge
a10: NVIDIA A10 | A10 24GB
a10g: NVIDIA A10G | g5.48xlarge
a30: NVIDIA A30
a40: NVIDIA A40 | A40-48GB
l4: NVIDIA L4 | nvidia-l4 | g2-standard-96
l40: NVIDIA L40
l40s: L40S | NVIDIA L40S | g6e.48xlarge
rtx-a6000: A6000 | NVIDIA RTX A6000 | RTXA6000
rtx-6000-ada: NVIDIA RTX 6000 Ada Generation | RTX6000-Ada
rtx-pro-6000: NVIDIA RTX PRO 6000 Blackwell Server Edition
quadro-rtx-6000: Quadro RTX 6000
quadro-rtx-8000: RTX8000-48GB | Quadro RTX 8000 | gres:gpu:rtx8000:2
rtx3090: RTX3090-24GB | NVIDIA GeForce RTX 3090 | 3090 | RTX_3090
rtx4090: RTX4090 | NVIDIA GeForce RTX 4090 | geforce-rtx-4090
rtx5090: NVIDIA GeForce RTX 5090
mi250x-gcd: MI250X | AMD Instinct MI250X/MI250 | MI250X GCD | mi250xgcd
mi250-gcd: AMD Instinct MI250
mi210: AMD Instinct MI210
mi300a: AMD Instinct MI300A
mi300x: MI300X | MI300X-192GB | AMD Instinct MI300X OAM | AMD_Instinct_MI300X_OAM | mi300xoam | MI300X 192 GB HBM3
mi325x: MI325X-256GB | AMD Instinct MI325X
mi350x: AMD Instinct MI350X
mi355x: MI355X-288GB | AMD Instinct MI355X
tpu-v3: TPU v3 | TPUv3 | TPU v3-16 | TPU v3 (per chip)
tpu-v3-core: TPU v3 core | TPU v3 TensorCore
tpu-v4: TPU v4 | TPU v4-256 = 128 chips (4x4x8) | tpu-v4-podslice
tpu-v5e: TPU v5e | TPU v5 lite | v5litepod-256 | v5litepod | tpu-v5-lite-podslice | TPUv5e
    | ct5lp-hightpu-4t | Cloud TPU v5e
tpu-v5p: TPU v5p | TPU v5 | v5p-128 | tpu-v5p-slice
tpu-v6e: TPU v6e | TPU v6 lite | Trillium | tpu-v6e-slice | ct6e-standard-4t
tpu-v7x: TPU v7x (Ironwood) | TPU7x | tpu7x-standard-4t | Ironwood
tpu-v7x-core: TPU7x TensorCore | TPU v7x core
gaudi2: Gaudi2-96GB | HL-225H | Intel Gaudi 2 | habana-gaudi2
gaudi3: Gaudi3 | Intel Gaudi-3 128GB | HL-325L
trainium1: Trainium1 | trn1.32xlarge | AWS Trainium 1
trainium1-neuroncore: Trainium1 NeuronCore (trn1/trn1n.32xlarge) | NeuronCore-v2
trainium2: Trainium2 | trn2.48xlarge | trn2u.48xlarge
trainium2-neuroncore: Trainium2 NeuronCore
ascend-910b-64gb: Ascend 910B | Ascend910B3 | 910B4 | Huawei Ascend 910B 64GB | Atlas 800T A2
"""

# What the text leaves open: the device taken, how, and a word of the note.
OPEN = [
    ("A100", "a100-sxm4-80gb", "family", "memory"),
    ("NVIDIA A100-SXM4", "a100-sxm4-80gb", "family", "memory"),
    ("V100", "v100-sxm2-32gb", "family", "memory"),
    ("Tesla V100", "v100-sxm2-32gb", "family", "memory"),
    ("gpu:v100:16", "v100-sxm2-32gb", "family", "memory"),  # sixteen cards, not 16 GB
    ("V100 x16", "v100-sxm2-32gb", "family", "memory"),
    ("V100, 16 GPUs", "v100-sxm2-32gb", "family", "memory"),
    ("16x V100", "v100-sxm2-32gb", "family", "memory"),
    ("gres/gpu:h100:8", "h100-sxm5-80gb", "family", "memory"),
    ("H100", "h100-sxm5-80gb", "family", "memory"),
    ("H100 PCIe", "h100-pcie-80gb", "family", "memory"),
    ("H100-94GB", "h100-sxm5-96gb", "family", "form factor"),
    ("H100 64GB", "h100-sxm5-80gb", "family", "64 GB"),
    ("A800-40GB", "a800-sxm4-80gb", "family", "40 GB"),
    ("A100 with 512GB RAM", "a100-sxm4-80gb", "family", "memory"),
    ("A800 PCIe", "a800-sxm4-80gb", "family", "form"),
    ("H20", "h20-sxm-96gb", "family", "memory"),
    ("GH200", "gh200-96gb", "family", "memory"),
    ("v4-128", "tpu-v4", "family", "no model"),
    ("Hopper", "h100-sxm5-80gb", "family", "no model"),
    ("Gaudi", "gaudi2", "family", "no model"),
    ("B100", "b200-sxm-180gb", "family", "no model"),
    ("80GB class", "h100-sxm5-80gb", "default", "size only"),
    ("64 GB NPU (60.96 GiB)", "ascend-910b-64gb", "default", "no model"),
    ("AMD MI999", "mi300x", "default", "no model"),
    ("some Cloud TPU", "tpu-v5p", "default", "no model"),
    ("not stated", "h100-sxm5-80gb", "default", "not known"),
    ("???", "h100-sxm5-80gb", "default", "not known"),
    ("", "h100-sxm5-80gb", "default", "not given"),
]

TABLE = by_name(EXACT)


@pytest.mark.parametrize(("text", "name"), TABLE)
def test_a_spelling_names_one_entry(text: str, name: str) -> None:
    found = recognise_accelerator(text)
    assert (found.accelerator.name, found.how, found.note) == (name, "exact", None)


def test_the_table_is_long_and_covers_the_catalog() -> None:
    assert len(TABLE) + len(OPEN) >= 120
    assert {name for _, name in TABLE} == set(accelerator_names())


@pytest.mark.parametrize(("text", "name", "how", "word"), OPEN)
def test_what_a_text_leaves_open_is_said(text: str, name: str, how: str, word: str) -> None:
    found = recognise_accelerator(text)
    assert (found.accelerator.name, found.how) == (name, how)
    assert found.note is not None
    assert word in found.note
    assert name in found.note
    assert "\n" not in found.note


@pytest.mark.parametrize(
    ("text", "mistaken"),
    [
        ("H1000", "h100"),
        ("X100", "a100"),
        ("XH100", "h100"),
        ("A1000", "a100"),
        ("L400", "l40"),
        ("T40", "t4"),
        ("GB2000", "gb200"),
        ("MI3000X", "mi300x"),
        ("HA100", "a100"),
        ("TPU v55", "tpu-v5"),
        ("910BX7B", "ascend"),
    ],
)
def test_a_longer_word_is_not_mistaken(text: str, mistaken: str) -> None:
    found = recognise_accelerator(text)
    assert found.how == "default" or mistaken not in found.accelerator.name


@pytest.mark.parametrize(("text", "gib"), [("NVIDIA A100-SXM-64GB", 64), ("A800-40GB", 40), ("H100 64GB", 64)])
def test_a_memory_that_no_entry_has_is_taken_from_the_text(text: str, gib: int) -> None:
    found = recognise_accelerator(text)
    assert found.accelerator.memory_bytes == gib * 2**30
    assert found.accelerator.peak_flops_per_s == load_accelerator(found.accelerator.name).peak_flops_per_s
    # Memory of the host or of several cards together is not that of one.
    for other in ("A100 with 512GB RAM", "DGX A100 640GB", "V100 node, 768 GB"):
        spec = recognise_accelerator(other).accelerator
        assert spec == load_accelerator(spec.name)


def test_a_rated_power_after_a_size_is_no_model() -> None:
    assert recognise_accelerator("V100 32GB 300W").accelerator.name == "v100-sxm2-32gb"
    assert recognise_accelerator("40 GB 200 W").accelerator.name == "a100-sxm4-40gb"


def test_the_first_of_two_devices_counts() -> None:
    assert recognise_accelerator("['V100-32GB', 'A100-80GB']").accelerator.name == "v100-sxm2-32gb"
    assert recognise_accelerator("A100-80GB vs. H100").accelerator.name == "a100-sxm4-80gb"


SPELLED = [(spelling, name) for name in accelerator_names() for spelling in (name, *load_accelerator(name).aliases)]
AROUND = ["", "NVIDIA ", "nvidia-", "GPU: ", "8x ", "gpu:", "Instinct_", "cloud/", "some "]
AFTER = ["", ", a GPU", ":8", " (8 per node)", " / 2 nodes", ", power limited", "-x8", "_MIG"]


@given(st.sampled_from(SPELLED), st.sampled_from(AROUND), st.sampled_from(AFTER), st.randoms(use_true_random=False))
def test_every_name_and_alias_is_found_however_it_is_set(
    spelled: tuple[str, str], before: str, after: str, rng: random.Random
) -> None:
    spelling, name = spelled
    letters = (
        rng.choice((char.upper(), char.lower())) if char.isalnum() else rng.choice("-_ ./,") for char in spelling
    )
    assert recognise_accelerator(before + "".join(letters) + after).accelerator.name == name


@pytest.mark.parametrize("name", accelerator_names())
def test_a_name_written_in_one_word_is_found(name: str) -> None:
    in_one_word = re.sub(r"(?<!\d)-|-(?!\d)", "", name)
    assert recognise_accelerator(in_one_word).accelerator.name == name


@given(st.text(max_size=400))
def test_no_text_is_an_error(text: str) -> None:
    found = recognise_accelerator(text)
    assert (found.note is None) == (found.how == "exact")
    assert found.note is None or ("\n" not in found.note and len(found.note) < 400)


@pytest.mark.parametrize("name", cluster_names())
def test_a_cluster_s_name_is_read_as_devices_of_its_kind(name: str) -> None:
    """A run's accelerator may name the instance; whatever is taken must not be of another family without saying so."""
    found = recognise_accelerator(name)
    assert found.how != "exact" or found.accelerator.family == load_cluster(name).accelerator.family


def test_a_user_s_own_names_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "accelerators"
    folder.mkdir()
    (folder / "lab-gpu.yaml").write_text(
        "extends: h100-sxm5-80gb\naliases: ['A100', 'the big one']\n", encoding="utf-8"
    )
    assert recognise_accelerator("A100").accelerator.name == "a100-sxm4-80gb"
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    for text in ("a100", "The Big-One", "LAB GPU"):
        found = recognise_accelerator(text)
        assert (found.accelerator.name, found.how) == ("lab-gpu", "exact")
    assert recognise_accelerator("A100-80GB").accelerator.name == "a100-sxm4-80gb"


def test_the_words_name_entries_of_the_catalog_once() -> None:
    words = spelling_words()
    named = {member.accelerator for family in words.families.values() for member in family.members}
    assert named == set(accelerator_names())
    suggested = (words.products, words.hints, words.leading, words.vendors, words.by_gb)
    assert {name for mapping in suggested for name in mapping.values()} | {words.default} <= named


def test_a_text_seen_before_costs_microseconds() -> None:
    recognise_accelerator("H100-80GB")
    seconds = min(timeit.repeat(lambda: recognise_accelerator("H100-80GB"), number=1000, repeat=5)) / 1000
    assert seconds < 5e-6
