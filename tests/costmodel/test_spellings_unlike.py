"""Accelerators from free text: slices, laptop parts and other products are not the model whose name they have."""

from __future__ import annotations

import pytest

from costmodel.catalog.spellings import recognise_accelerator
from tests.spellings import by_name

# Another product under a model's name, and devices that the catalog doesn't have: what stands in for them is said.
UNLIKE = """
a100-sxm4-80gb: NVIDIA-A100-SXM4-80GB-MIG-1g.10gb | A100 MIG 3g.40gb | A100-4C | GRID A100D-80C | A100-1-5C | A100X
a100-sxm4-40gb: NVIDIA-A100-SXM4-40GB-MIG-1g.5gb | A100-SXM4-40GB-MIG-3g.20gb | A100_40GB_MIG_1c.2g.10gb | A100-40C
h100-sxm5-80gb: H100 80GB HBM3 MIG 1g.10gb | H100-80GB MIG 1g.10gb+me | NVIDIA H100XM-80C | H100 vGPU | H100 CNX
v100-sxm2-32gb: GRID V100D-8Q | Tesla V100-DGXS-32GB
v100-sxm2-16gb: V100-FHHL-16GB | Tesla P100-PCIE-16GB
v100-pcie-32gb: Tesla V100S-PCIE-32GB
v100-pcie-16gb: Quadro P5000 | NVIDIA TITAN V | Tesla K80 | NVIDIA GeForce GTX 1080 Ti
t4: T4G
a10: A10M | NVIDIA A2
a40: A40-48Q
l40: L40G
l40s: NVIDIA L20
quadro-rtx-6000: NVIDIA GeForce RTX 2080 Ti | NVIDIA TITAN RTX | Quadro RTX 5000
rtx3090: RTX 3090 Ti | rtx3090ti | NVIDIA GeForce RTX 3080 | NVIDIA GeForce RTX 3060 Laptop GPU
rtx4090: GeForce RTX 4090 Laptop GPU | RTX 4090 D | RTX4090D | NVIDIA GeForce RTX 4080 SUPER | GeForce 4070 Ti
rtx5090: NVIDIA GeForce RTX 5090 D | RTX 5090 Laptop | NVIDIA GeForce RTX 5070 Ti
rtx-a6000: NVIDIA RTX A5000 | RTX A6000 Laptop
rtx-6000-ada: NVIDIA RTX 5000 Ada Generation | RTX 6000 Ada Mobile
rtx-pro-6000: NVIDIA RTX PRO 5000 Blackwell | RTX PRO 6000 Blackwell Max-Q Workstation Edition
mi210: AMD Instinct MI100 | Radeon RX 7900 XTX
mi300x: AMD Instinct MI308X | MI300C | MI300XHF
ascend-910b-64gb: Ascend 910B2C | Ascend 910C
tpu-v4: TPU v4i
b300-sxm-288gb: B300A
gaudi2: Gaudi2D | HL-205
"""


@pytest.mark.parametrize(("text", "name"), by_name(UNLIKE))
def test_another_product_is_not_the_model_whose_name_it_has(text: str, name: str) -> None:
    found = recognise_accelerator(text)
    assert (found.accelerator.name, found.how) == (name, "family")
    assert found.note is not None
    assert "not the same" in found.note or "no model of the catalog" in found.note
    assert name in found.note
    assert "\n" not in found.note


@pytest.mark.parametrize(
    "text",
    [
        "A100-80GB, MIG off",
        "8 A100s 80GB",
        "A100-80GB x8",
        "A100x8 80GB",
        "grid5000: A100-80GB",
        "A100-80GB, 70B model",
    ],
)
def test_what_only_looks_like_another_product_is_the_model(text: str) -> None:
    found = recognise_accelerator(text)
    assert (found.accelerator.name, found.how) == ("a100-sxm4-80gb", "exact")


@pytest.mark.parametrize(
    ("text", "how"), [("RTX 4090 48GB", "family"), ("8x L40S 384GB", "family"), ("mig-3g.40gb", "default")]
)
def test_what_doesn_t_fit_the_model_is_said(text: str, how: str) -> None:
    found = recognise_accelerator(text)
    assert found.how == how
    assert found.note is not None
    assert ("MIG" if text.startswith("mig") else "a memory of") in found.note
