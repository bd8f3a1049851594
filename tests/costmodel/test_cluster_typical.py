"""Clusters for runs that name only the accelerator, and nodes of another size."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from costmodel.catalog.cluster_catalog import accelerator_names, cluster_names, load_accelerator, load_cluster
from costmodel.catalog.typical_clusters import cluster_with, typical_cluster
from costmodel.errors import InvalidInput
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec
from costmodel.spec.validation import build


def typical(name: str) -> ClusterSpec:
    return typical_cluster(load_accelerator(name))


def groups(cluster: ClusterSpec) -> list[tuple[str, int | None]]:
    return [(tier.kind, tier.group_devices) for tier in cluster.tiers]


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator_has_a_typical_cluster_that_is_as_large_as_asked(name: str) -> None:
    accelerator = load_accelerator(name)
    cluster = typical_cluster(accelerator)
    assert cluster.accelerator == accelerator
    cluster.check_devices(100_000)
    assert accelerator.typical_cluster


NODES = [*range(1, 100), 128, 192, 256, 512, 1000, 1024, 2048, 4096, 8192, 8960, 9973, 16384, 19997, 20000]


@pytest.mark.parametrize("name", accelerator_names())
def test_no_size_of_a_node_is_refused(name: str) -> None:
    cluster = typical(name)
    for node in [*NODES, *random.Random(name).sample(range(100, 20_001), 20)]:
        changed = cluster_with(cluster, devices_per_node=node)
        assert changed.devices_per_node == node
        assert changed.accelerator is cluster.accelerator
        assert {tier.kind for tier in changed.tiers} <= {tier.kind for tier in cluster.tiers}
        changed.check_devices(100_000)


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        ("h100-sxm5-80gb", 8, [("nvlink", 8), ("infiniband", None)]),
        ("h100-sxm5-80gb", 4, [("nvlink", 4), ("infiniband", None)]),
        ("h100-sxm5-80gb", 1, [("infiniband", None)]),
        ("v100-sxm2-32gb", 16, [("nvlink", 16), ("infiniband", None)]),  # DGX-2
        ("v100-sxm2-32gb", 4, [("nvlink", 4), ("infiniband", None)]),
        ("h100-sxm5-80gb", 64, [("nvlink", 16), ("infiniband", None)]),
        ("gb200", 4, [("nvlink", 72), ("infiniband", None)]),
        ("gb200", 8, [("nvlink", 72), ("infiniband", None)]),
        ("gb200", 1, [("nvlink", 72), ("infiniband", None)]),
        ("gb200", 16, [("nvlink", 64), ("infiniband", None)]),
        ("gb200", 144, [("nvlink", 72), ("infiniband", None)]),
        ("tpu-v5e", 256, [("ici", 256), ("tcp", None)]),
        ("tpu-v6e", 16, [("ici", 16), ("tcp", None)]),
        ("tpu-v5p", 64, [("ici", 64), ("tcp", None)]),
        ("tpu-v5p", 2048, [("ici", 2048), ("tcp", None)]),
        ("tpu-v7x", 64, [("ici", 64), ("tcp", None)]),
        ("tpu-v3", 128, [("ici", 128), ("tcp", None)]),
        ("tpu-v4", 4, [("ici", 4096), ("tcp", None)]),
        ("trainium1-neuroncore", 32, [("neuronlink", 32), ("efa", None)]),
        ("gaudi2", 4, [("roce", 4), ("roce", None)]),
        ("gaudi2", 1, [("roce", None)]),
        ("l40s", 4, [("pcie", 4), ("efa", None)]),
        ("a100-pcie-80gb", 4, [("nvlink", 2), ("pcie", 4), ("infiniband", None)]),
        ("a100-pcie-80gb", 2, [("nvlink", 2), ("infiniband", None)]),
        ("a100-pcie-80gb", 3, [("pcie", 3), ("infiniband", None)]),
    ],
)
def test_the_links_of_a_node_of_another_size(name: str, node: int, expected: list[tuple[str, int | None]]) -> None:
    assert groups(cluster_with(typical(name), devices_per_node=node)) == expected


def test_rates_go_to_the_links_inside_and_outside_of_a_node() -> None:
    given = cluster_with(
        typical("a100-sxm4-80gb"),
        scale_up_bandwidth_bytes_per_s=150e9,
        scale_out_bandwidth_bytes_per_s_per_device=12.5e9,
    )
    assert [tier.bandwidth_bytes_per_s for tier in given.tiers] == [150e9, 12.5e9]
    gaudi = cluster_with(typical("gaudi2"), scale_up_bandwidth_bytes_per_s=200e9)
    assert [tier.bandwidth_bytes_per_s for tier in gaudi.tiers] == [200e9, 37.5e9]
    alone = cluster_with(typical("h100-sxm5-80gb"), devices_per_node=1, scale_up_bandwidth_bytes_per_s=200e9)
    assert [tier.bandwidth_bytes_per_s for tier in alone.tiers] == [50e9]
    pods = cluster_with(load_cluster("meta-llama3-h100"), scale_out_bandwidth_bytes_per_s_per_device=25e9)
    assert [tier.bandwidth_bytes_per_s for tier in pods.tiers] == [450e9, 25e9, 25e9]
    assert pods.tiers[-1].oversubscription == 7
    assert given.source.endswith("as given")


def test_nothing_given_changes_nothing() -> None:
    for name in cluster_names():
        cluster = load_cluster(name)
        assert cluster_with(cluster) is cluster
        assert cluster_with(cluster, devices_per_node=cluster.devices_per_node) is cluster


def test_a_single_box_is_as_large_as_its_node() -> None:
    box = cluster_with(load_cluster("rtx4090-8"), devices_per_node=4)
    assert (box.max_devices, box.scale_up_devices) == (4, 4)
    assert cluster_with(load_cluster("l40s-8"), devices_per_node=1).tiers == ()
    pods = cluster_with(load_cluster("meta-llama3-h100"), devices_per_node=4)
    assert groups(pods) == [("nvlink", 4), ("roce", 3072), ("roce", None)]
    assert pods.max_devices == 24_576


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dgx-h100", {"devices_per_node": 0}, r"devices_per_node: 0 .* at least 1"),
        ("dgx-h100", {"devices_per_node": True}, r"devices_per_node: True .* whole number"),
        ("meta-llama3-h100", {"devices_per_node": 30_000}, r"cluster\.devices_per_node: 30000 .* max_devices"),
        ("dgx-h100", {"scale_up_bandwidth_bytes_per_s": 450}, r"bandwidth_bytes_per_s: 450 .* bytes per second"),
    ],
)
def test_values_that_can_not_be_are_refused(name: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        cluster_with(load_cluster(name), **changes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_other_devices_in_a_typical_cluster_are_named_and_have_no_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h100_96 = typical("h100-sxm5-96gb")
    assert (h100_96.name, h100_96.tiers) == ("dgx-h100 with h100-sxm5-96gb", load_cluster("dgx-h100").tiers)
    (tmp_path / "clusters").mkdir()
    priced = "extends: dgx-h100\nprice_per_device_hour: 2\nprice_note: ours\n"
    (tmp_path / "clusters" / "dgx-h100.yaml").write_text(priced, encoding="utf-8")
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert typical("h100-sxm5-80gb").price_per_device_hour == 2
    assert typical("h100-sxm5-96gb").price_per_device_hour is None


def test_an_accelerator_that_names_no_cluster_gets_its_family_s() -> None:
    fields = dict(load_accelerator("a100-sxm4-80gb")) | {"name": "ours", "typical_cluster": ""}
    assert typical_cluster(build(AcceleratorSpec, fields, "a")).tiers == load_cluster("dgx-a100-80gb").tiers
    with pytest.raises(InvalidInput, match=r"accelerator\.typical_cluster: 'dgx-h10' .*dgx-h100"):
        typical_cluster(build(AcceleratorSpec, fields | {"typical_cluster": "dgx-h10"}, "a"))


def test_every_family_has_a_cluster() -> None:
    for name in accelerator_names():
        fields = dict(load_accelerator(name)) | {"name": "ours", "typical_cluster": ""}
        typical_cluster(build(AcceleratorSpec, fields, "a")).check_devices(4096)
