"""Clusters and accelerators as values: what they refuse, what they derive."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from costmodel.errors import InvalidInput
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.validation import build


def accelerator_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "name": "toy",
        "vendor": "ACME",
        "family": "ampere",
        "memory_bytes": 40 * 2**30,
        "memory_bandwidth_bytes_per_s": 1e12,
        "peak_flops_per_s": {"fp32": 20e12, "bf16": 300e12},
        "source": "a test",
    }
    return fields | changes


def tier_fields(**changes: Any) -> dict[str, Any]:
    return {"name": "link", "kind": "nvlink", "group_devices": 8, "bandwidth_bytes_per_s": 300e9} | changes


INNER, OUTER = tier_fields(), tier_fields(kind="infiniband", group_devices=None)


def cluster_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "name": "toy-cluster",
        "accelerator": accelerator_fields(),
        "devices_per_node": 8,
        "tiers": [INNER, OUTER],
        "source": "a test",
    }
    return fields | changes


def cluster(**changes: Any) -> ClusterSpec:
    return build(ClusterSpec, cluster_fields(**changes), "cluster")


def test_peak_of_a_precision_the_device_lacks_names_those_it_has() -> None:
    spec = build(AcceleratorSpec, accelerator_fields(), "accelerator")
    assert spec.peak("bf16") == 300e12
    with pytest.raises(InvalidInput, match=r"precision: 'fp8' is not usable; toy has fp32, bf16"):
        spec.peak("fp8")


def test_values_can_be_hashed_compared_pickled_copied_and_dumped_but_not_changed() -> None:
    spec = cluster()
    assert spec == cluster()
    assert hash(spec) == hash(cluster())
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert ClusterSpec.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        spec.accelerator.peak_flops_per_s["bf16"] = 1.0  # type: ignore[index]


def test_effective_bandwidth_is_the_wire_over_the_oversubscription() -> None:
    tier = build(TierSpec, tier_fields(bandwidth_bytes_per_s=50e9, oversubscription=4), "tier")
    assert tier.effective_bandwidth_bytes_per_s == 12.5e9


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, 8, id="dgx"),
        pytest.param({"devices_per_node": 4, "tiers": [tier_fields(group_devices=72), OUTER]}, 72, id="rack"),
        pytest.param({"devices_per_node": 1, "tiers": [], "max_devices": 1}, 1, id="single device"),
        pytest.param({"tiers": [tier_fields(kind="efa", group_devices=None)]}, 1, id="network only"),
        pytest.param({"tiers": [tier_fields(kind="ici", group_devices=None)], "max_devices": 64}, 64, id="torus"),
        pytest.param(
            {"devices_per_node": 1, "tiers": [tier_fields(kind="roce"), tier_fields(kind="roce", group_devices=None)]},
            1,
            id="pods of one-device nodes",
        ),
        pytest.param(
            {"tiers": [tier_fields(kind="roce"), tier_fields(kind="roce", group_devices=None)]}, 8, id="roce in the box"
        ),
    ],
)
def test_scale_up_devices(changes: dict[str, Any], expected: int) -> None:
    assert cluster(**changes).scale_up_devices == expected


def test_a_request_for_more_devices_than_there_are_is_refused() -> None:
    box = cluster(tiers=[tier_fields()], max_devices=8)
    box.check_devices(8)
    with pytest.raises(InvalidInput, match=r"devices: 16 is not usable; toy-cluster has 8"):
        box.check_devices(16)
    with pytest.raises(InvalidInput, match="at least 1"):
        box.check_devices(0)
    cluster().check_devices(100_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiers": []}, r"cluster\.tiers: .* at least one tier is needed, unless max_devices is 1"),
        ({"tiers": [OUTER, INNER]}, r"cluster\.tiers\[0\]\.group_devices: None .* only the outermost"),
        ({"tiers": [INNER, tier_fields(group_devices=8), OUTER]}, r"tiers\[1\]\.group_devices: 8 .* multiple of the 8"),
        ({"tiers": [INNER, tier_fields(group_devices=20), OUTER]}, r"tiers\[1\]\.group_devices: 20 .* multiple of"),
        ({"tiers": [INNER]}, r"tiers\[0\]\.group_devices: 8 .* join all of max_devices"),
        ({"tiers": [INNER], "max_devices": 16}, r"tiers\[0\]\.group_devices: 8 .* max_devices \(16\)"),
        ({"devices_per_node": 6}, r"tiers\[0\]\.group_devices: 8 .* devices_per_node \(6\)"),
        ({"max_devices": 4}, r"devices_per_node: 8 .* max_devices \(4\)"),
        ({"devices_per_node": 0}, r"devices_per_node: 0 .* at least 1"),
        ({"devices_per_node": 8.5}, r"devices_per_node: 8\.5 .* whole number"),
        ({"devices_per_node": True}, r"devices_per_node: True .* whole number"),
        ({"name": ""}, r"cluster\.name"),
        ({"price_per_device_hour": -1}, r"price_per_device_hour: -1"),
        ({"host_bandwidth_bytes_per_s": 64}, r"host_bandwidth_bytes_per_s: 64 .* bytes per second"),
        ({"retrieved": "last week"}, r"retrieved: 'last week' .* 2026-11-29"),
        ({"devices_pernode": 8}, r"devices_pernode: 8 .* did you mean devices_per_node"),
    ],
)
def test_bad_clusters_are_refused_with_the_field_and_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        cluster(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth_bytes_per_s": 400}, r"400 Gbit/s is 50e9"),
        ({"bandwidth_bytes_per_s": 0}, r"bandwidth_bytes_per_s: 0 "),
        ({"bandwidth_bytes_per_s": float("inf")}, r"finite"),
        ({"bandwidth_bytes_per_s": True}, r"a number is expected"),
        ({"oversubscription": 0.5}, r"oversubscription: 0\.5 .* at least 1"),
        ({"group_devices": 1}, r"group_devices: 1 .* at least 2"),
        ({"kind": "carrier pigeon"}, r"kind: 'carrier pigeon' .*nvlink"),
    ],
)
def test_bad_tiers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(TierSpec, tier_fields(**changes), "tier")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_bytes": 80}, r"memory_bytes: 80 .* bytes are expected"),
        ({"peak_flops_per_s": {"bf16": 989}}, r"peak_flops_per_s\.bf16: 989 .* 989e12"),
        ({"peak_flops_per_s": {"bf17": 989e12}}, r"bf17"),
        ({"peak_flops_per_s": {}}, r"peak_flops_per_s"),
        ({"family": "pascal"}, r"family: 'pascal' .*volta"),
    ],
)
def test_bad_accelerators_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(AcceleratorSpec, accelerator_fields(**changes), "accelerator")
