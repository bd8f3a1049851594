"""The pages of the catalog: lists, entries, and what is drawn of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from api.dashboard.catalog import frameworks, machines, models
from api.dashboard.catalog.routes import router
from api.dashboard.catalog.tiers import Box, Picture, picture_of
from api.routes import catalog
from costmodel.catalog.accelerator_catalog import accelerator_names
from costmodel.catalog.cluster_catalog import cluster_names, named_cluster
from costmodel.catalog.framework_catalog import framework_names
from costmodel.catalog.model_catalog import model_names, named_model
from tests.api.pages_here import Here, pages_here


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with pages_here(tmp_path_factory.mktemp("catalog"), router, catalog.router) as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("models", model_names),
        ("accelerators", accelerator_names),
        ("clusters", cluster_names),
        ("frameworks", framework_names),
    ],
)
def test_every_entry_is_listed_and_leads_to_its_page(here: Here, kind: str, names: object) -> None:
    assert callable(names)
    page = here.page(f"/catalog?kind={kind}")
    for name in names():
        assert page.attributes("a", href=f"/catalog/{kind}/{name}"), name
    assert len(here.json(f"/catalog.json?kind={kind}")["items"]) == len(names())


def test_what_comes_into_the_users_folder_is_listed_at_once(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert "our-own" not in here.page("/catalog?kind=clusters").text
    (tmp_path / "clusters").mkdir()
    own = tmp_path / "clusters" / "our-own.yaml"
    own.write_text("name: our-own\nextends: dgx-h100\nsource: ours\n", encoding="utf-8")
    assert here.page("/catalog?kind=clusters").attributes("a", href="/catalog/clusters/our-own")
    own.unlink()
    assert "our-own" not in here.page("/catalog?kind=clusters").text


def test_lists_of_models_and_clusters_are_those_of_the_api(here: Here) -> None:
    for kind in ("models", "clusters"):
        whole = here.json(f"/v1/{kind}")
        assert here.json(f"/catalog.json?kind={kind}") == whole
        found = here.json(f"/catalog.json?kind={kind}&q=dgx h100")["items"]
        assert found == [item for item in whole["items"] if item in found]
    assert "dgx-h100" in {item["name"] for item in found}
    assert "a3-highgpu-8g" not in {item["name"] for item in found}


def test_entries_of_the_api_are_the_twins(here: Here) -> None:
    for path in ("models/llama-3.1-8b", "clusters/p5.48xlarge"):
        assert here.json(f"/catalog/{path}.json") == here.json(f"/catalog/{path}") == here.json(f"/v1/{path}")


def test_parts_of_every_model_add_up() -> None:
    for name in model_names():
        (table,) = models.entry_of(name).tables
        parts = [int(row[3].text.replace(",", "")) for row in table.rows]
        assert sum(parts[:-1]) == parts[-1] == named_model(name).params.total, name


def test_every_accelerator_cluster_and_framework_has_a_page(here: Here) -> None:
    for name in accelerator_names():
        assert machines.accelerator_entry(name).source
    for name in cluster_names():
        assert machines.cluster_entry(name).source
    for name in framework_names():
        entry = frameworks.entry_of(name, None)
        assert entry.tables[0].rows
    page = here.page("/catalog/accelerators/h100-sxm5-80gb")
    assert "989" in page.text
    assert page.attributes("a", href="/catalog/clusters/dgx-h100")


def test_rules_are_those_of_the_version_with_meaning_and_source(here: Here) -> None:
    older, newer = (here.json(f"/catalog/frameworks/torchtitan.json?version={version}") for version in ("0.2", "0.3"))
    assert {rule["name"] for rule in newer["rule_list"]} != {rule["name"] for rule in older["rule_list"]}
    assert all(rule["meaning"] and rule["source"] for rule in newer["rule_list"])
    page = here.page("/catalog/frameworks/torchtitan?version=0.2")
    assert "The attention heads divide evenly over tensor parallelism." in page.text
    assert page.attributes("option", value="0.2", selected="")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/catalog?kind=shoes", 422, "'models', 'accelerators', 'clusters' or 'frameworks'"),
        ("/catalog?sort=up", 422, "sort"),
        ("/catalog/shoes/x", 404, "did you mean models"),
        ("/catalog/models/lama-3-8b", 404, "did you mean llama-3-8b"),
        ("/catalog/frameworks/torchtitan?version=9", 404, "there is no version '9'"),
        ("/catalog/models/llama-3-8b?version=1", 422, "only frameworks have versions"),
    ],
)
def test_what_is_not_there_is_said(here: Here, path: str, status: int, said: str) -> None:
    assert said in here.page(path, status).text


def test_a_filter_that_nothing_holds_says_so(here: Here) -> None:
    page = here.page("/catalog?q=<script>no such")
    assert "No entry holds that" in page.text
    assert page.attributes("input", name="q", value="<script>no such")


def _drawn(name: str) -> Picture:
    found = picture_of(named_cluster(name))
    assert found is not None
    return found


def test_boxes_lie_within_one_another_and_the_picture() -> None:
    for name in cluster_names():
        found = picture_of(named_cluster(name))
        if found is None:
            continue
        frames = [box for box in found.boxes if not box.ghost]
        for outer, inner in pairwise(frames):
            assert _within(inner, outer.x, outer.y, outer.x + outer.width, outer.y + outer.height), name
        assert all(_within(box, -1, -1, found.width + 1, found.height + 1) for box in found.boxes), name


def _within(box: Box, left: float, top: float, right: float, bottom: float) -> bool:
    ends = box.x + box.width, box.y + box.height
    return left < box.x and top < box.y and ends[0] < right and ends[1] < bottom


def test_a_picture_says_what_joins_what() -> None:
    found = _drawn("gb200-nvl72")
    assert found.told.startswith("node: 4 devices; NVLink: 72 devices, 900 GB/s each way per device, switches reduce;")
    assert [box.lines for box in found.boxes if box.ghost] == [("× n",), ("× 18",)]
    assert len(found.cells) == 4
    assert picture_of(named_cluster("rtx4090-1")) is None
