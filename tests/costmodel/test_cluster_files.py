"""Users' own clusters and accelerators: the document's examples, overrides, and every way a file can be broken."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration.calibration import calibration_names, load_calibration
from costmodel.catalog.cluster_catalog import (
    accelerator_names,
    cluster_names,
    load_accelerator,
    load_cluster,
    parse_cluster,
)
from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.errors import InvalidInput, UnreadableFile
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.collective import MeasuredCollective

DOCUMENT = Path(__file__).parents[2] / "docs" / "catalog.md"
MIB = 2**20


SWEEP = "extends: dgx-h100\ncollectives:\n  - {{op: {op}, ranks: {ranks}, domains: 2, points: {points}}}\n"


def write(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_examples_of_the_document_load(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n# (\S+)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in blocks] == ["our-h100.yaml", "lab.yaml", "measured.yaml"]
    extended, lab, measured = (load_cluster(write(tmp_path, name, text)) for name, text in blocks)
    assert (extended.name, extended.max_devices, extended.price_per_device_hour) == ("our-h100", 512, 2.10)
    assert extended.tiers == load_cluster("dgx-h100").tiers
    assert extended.source.endswith("changed by the user")
    assert (lab.name, lab.accelerator.name, lab.accelerator.family) == ("lab", "h100-96gb", "hopper")
    assert lab.accelerator.memory_bytes == 97871 * MIB
    assert [tier.effective_bandwidth_bytes_per_s for tier in lab.tiers] == [450e9, 50e9, 25e9]
    (sweep,) = measured.collectives
    assert (sweep.op, sweep.ranks, sweep.domains, len(sweep.points)) == ("all_reduce", 16, 2, 4)


def test_the_document_lists_every_field() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for model in (ClusterSpec, TierSpec, AcceleratorSpec, MeasuredCollective):
        for field in model.model_fields:
            assert f"`{field}`" in text, field


def test_json_files_and_mappings_describe_a_cluster_too(tmp_path: Path) -> None:
    body = {"extends": "dgx-h100", "accelerator": "h200", "retrieved": "2026-01-02"}
    from_mapping = parse_cluster(body)
    from_file = load_cluster(write(tmp_path, "mine.json", json.dumps(body)))
    assert from_mapping.accelerator == from_file.accelerator == load_accelerator("h200-sxm-141gb")
    dated = write(tmp_path, "dated.yml", "extends: dgx-h100\nretrieved: 2026-01-02\n")
    assert load_cluster(dated).retrieved == "2026-01-02"
    assert parse_cluster(load_cluster("dgx-h100").model_dump()) == load_cluster("dgx-h100")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "extends: dgx-h100\n  name: x: y\n", r"line 2, column \d+: "),
        ("a.yaml", "name: x\nname: y\n", r"line 2, column 1: 'name' is given twice"),
        ("a.yaml", "a: [1, 2\n", r"line \d+, column \d+"),
        ("a.yaml", "- extends: dgx-h100\n", r"a mapping of field to value is expected at the top, not a list"),
        ("a.yaml", "", r"not nothing"),
        ("a.yaml", "1: one\n", r"field names are text, not 1"),
        ("a.yaml", "name: x\n---\nname: y\n", r"line 2"),
        ("a.yaml", "name: !!python/object:os.system x\n", r"line 1"),
        ("a.yaml", "name: \x07\n", r"isn't YAML|line"),
        ("a.yaml", "retrieved: 2026-13-45\n", r"unusable value"),
        ("a.yaml", "[" * 100_000, r"nested too deeply|line"),
        ("a.json", '{"extends": "dgx-h100",}', r"line 1, column \d+: "),
        ("a.json", '{"name": "x", "name": "y"}', r"'name' is given twice"),
        ("a.json", "[]", r"not a list"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UnreadableFile, match=message) as caught:
        load_cluster(write(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_files_that_can_not_be_read_say_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="there is no such file"):
        load_cluster(str(tmp_path / "absent.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(UnreadableFile, match="can't be read"):
        load_cluster(str(tmp_path / "folder.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(UnreadableFile, match="UTF-8"):
        load_cluster(str(tmp_path / "latin.yaml"))
    with pytest.raises(UnreadableFile, match="home directory"):
        load_cluster("~nobody-of-that-name/a.yaml")
    (tmp_path / "weights.yaml").write_bytes(b" " * (16 * 2**20 + 1))
    with pytest.raises(UnreadableFile, match="larger than 16 MiB"):
        load_cluster(str(tmp_path / "weights.yaml"))
    with pytest.raises(UnreadableFile, match=r"\.yaml or \.yml or \.json"):
        load_cluster(str(tmp_path / "cluster.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: dgx-h10\n", r"cluster\.extends: 'dgx-h10' .*dgx-h100"),
        ("extends: [dgx-h100]\n", r"cluster\.extends: .* name of a catalog cluster"),
        ("extends: dgx-h100\nmax_device: 8\n", r"cluster\.max_device: 8 .* did you mean max_devices"),
        ("extends: dgx-h100\naccelerator: h10O\n", r"cluster\.accelerator: 'h10O' .*did you mean"),
        ("extends: dgx-h100\naccelerator: 7\n", r"cluster\.accelerator: 7 "),
        ("extends: dgx-h100\naccelerator: {extends: h100, memory_byte: 1}\n", r"accelerator\.extends: 'h100' "),
        (
            "extends: dgx-h100\naccelerator: {extends: gb200, memory_byte: 1}\n",
            r"cluster\.accelerator\.memory_byte: 1 .* did you mean memory_bytes",
        ),
        (
            "extends: dgx-h100\ntiers:\n- {name: n, kind: nvlink, bandwidth_bytes_per_sec: 1e9}\n",
            r"cluster\.tiers\[0\]\.bandwidth_bytes_per_s",
        ),
        ("extends: dgx-h100\ntiers: 3\n", r"cluster\.tiers: 3 "),
        ("extends: dgx-h100\ntiers: [{1: 2}]\n", r"cluster\.tiers"),
        ("extends: dgx-h100\ncollectives: 3\n", r"cluster\.collectives: 3 "),
        (
            SWEEP.format(op="gather", ranks=8, points="[[1, 2.0], [4, 2.1]]"),
            r"collectives\[0\]\.op: 'gather' .*all_gather",
        ),
        (
            SWEEP.format(op="all_gather", ranks=1, points="[[1, 2.0], [4, 2.1]]"),
            r"collectives\[0\]\.ranks: 1 .*at least 2",
        ),
        (
            SWEEP.format(op="all_gather", ranks=7, points="[[1, 2.0], [4, 2.1]]"),
            r"collectives\[0\]\.domains: 2 .*evenly",
        ),
        (
            SWEEP.format(op="all_gather", ranks=32, points="[[1, 2.0], [4, 2.1]]"),
            r"cluster\.collectives\[0\]\.ranks: 32 .* 16 of them in one scale-up domain, and one has 8",
        ),
        (SWEEP.format(op="all_gather", ranks=8, points="[[1, 2.0]]"), r"collectives\[0\]\.points: .*at least 2"),
        (
            SWEEP.format(op="all_gather", ranks=8, points="[[4, 2.0], [4, 2.1]]"),
            r"collectives\[0\]\.points: 4 .*have to rise",
        ),
        (
            SWEEP.format(op="all_gather", ranks=8, points="[[1, 2.0], [1000000000, 1.2]]"),
            r"\.points: .*microseconds are",
        ),
        (
            SWEEP.format(op="all_gather", ranks=8, points="[[1, 2.0], [4, 2.1]]")
            + "  - {op: all_gather, ranks: 8, domains: 2, points: [[1, 2.0], [4, 2.1]]}\n",
            r"collectives\[1\]\.op: 'all_gather' .*collectives\[0\] has the same",
        ),
        ("devices_per_node: 8\n", r"cluster\.accelerator: None .* required"),
    ],
)
def test_wrong_fields_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        load_cluster(write(tmp_path, "mine.yaml", text))
    assert "\n" not in str(caught.value)


def test_a_body_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cluster: 3 "):
        parse_cluster(3)  # type: ignore[arg-type]


def test_a_users_folder_extends_and_overrides_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "extends: h100-sxm5-80gb\nmemory_bytes: 102625181696\naliases: [ours]\n"
    write(tmp_path, "accelerators/h100-96.yaml", ours)
    write(tmp_path, "clusters/Lab.yaml", "extends: dgx-h100\naccelerator: ours\n")
    write(tmp_path, "clusters/dgx-h100.yaml", "extends: dgx-h100\nmax_devices: 64\n")
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert {"Lab", "dgx-h100", "p5.48xlarge"} <= set(cluster_names())
    assert "h100-96" in accelerator_names()
    assert load_cluster("dgx-h100").max_devices == 64
    lab = load_cluster("lab")
    assert (lab.name, lab.accelerator.name, lab.max_devices) == ("Lab", "h100-96", 64)
    monkeypatch.delenv("PLANNER_CATALOG_DIR")
    assert load_cluster("dgx-h100").max_devices is None


def test_extending_in_a_circle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "clusters/a.yaml", "extends: b\n")
    write(tmp_path, "clusters/b.yaml", "extends: a\n")
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    with pytest.raises(InvalidInput, match="leads back to itself"):
        load_cluster("a")


# What every kind of entry offers: its folder, a packaged name, its names and its loader.
CATALOGS: list[tuple[str, str, Callable[[], tuple[str, ...]], Callable[[str], Any]]] = [
    ("accelerators", "h100-sxm5-80gb", accelerator_names, load_accelerator),
    ("calibrations", "published-2026-11", calibration_names, load_calibration),
    ("clusters", "dgx-h100", cluster_names, load_cluster),
    ("frameworks", "megatron-core", framework_names, load_framework),
    ("models", "llama-3-8b", model_names, load_model),
]
every_catalog = pytest.mark.parametrize(("folder", "name", "names", "load"), CATALOGS, ids=[row[0] for row in CATALOGS])


@every_catalog
def test_a_users_folder_serves_every_kind_of_entry(
    folder: str,
    name: str,
    names: Callable[[], tuple[str, ...]],
    load: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under the user's home too, in any case of letters, beside files that are none, before the packaged entries."""
    packaged = load(name)
    own = tmp_path / "catalog" / folder
    own.mkdir(parents=True)
    with as_file(files("costmodel.catalog") / folder) as source:
        (file,) = (path for path in source.iterdir() if path.stem == name)
        shutil.copy(file, own / f"Our-Own{file.suffix}")
        shutil.copy(file, own / f"{name.upper()}{file.suffix.upper()}")
    (own / f".our-other{file.suffix}").write_text("half-written")
    (own / "notes.txt").write_text("not an entry")
    before = names()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLANNER_CATALOG_DIR", "~/catalog")
    assert set(names()) == set(before) - {name} | {"Our-Own", name.upper()}
    assert list(names()) == sorted(names(), key=str.lower)
    assert load(" our-OWN ")
    (own / f"{name.upper()}{file.suffix.upper()}").write_text("[]")
    with pytest.raises(UnreadableFile, match="not a list"):
        load(name)
    monkeypatch.delenv("PLANNER_CATALOG_DIR")
    assert load(name) == packaged


@every_catalog
@pytest.mark.parametrize("value", ["{absent}", "~nobody-of-that-name/catalog"])
def test_a_users_folder_that_is_absent_is_said(
    value: str,
    folder: str,
    name: str,
    names: Callable[[], tuple[str, ...]],
    load: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANNER_CATALOG_DIR", value.format(absent=tmp_path / "absent"))
    with pytest.raises(InvalidInput, match="PLANNER_CATALOG_DIR: "):
        load(name)
    with pytest.raises(InvalidInput, match="PLANNER_CATALOG_DIR: "):
        names()
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    assert load(name)


def test_the_document_names_every_folder() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert all(f"`{folder}/`" in text for folder, *_ in CATALOGS)
