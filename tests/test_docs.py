"""What people read stays true: links lead somewhere, and no file depends on the machine it was written on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md")), ROOT / "docker/README.md"]

# [text](target) and ![text](target "title"); code spans and fences are cut out before.
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)

# Homes and work folders of one machine. A relative path or a URL has something in front of the slash.
MACHINE_PATH = re.compile(r"(?<![\w.~$}*-])/(?:work|root|home/\w+|Users/\w+)/")
MADE_BY_TOOLS = {".git", ".venv", ".ci-venv", "build", "dist", "node_modules", "__pycache__", "shared"}


def is_made_by_tools(folder: str) -> bool:
    return folder in MADE_BY_TOOLS or folder.endswith((".egg-info", "_cache")) or folder == ".hypothesis"


def text_files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if not is_made_by_tools(name)]
        yield from (Path(folder, name) for name in names)


def text_of(path: Path) -> str:
    """The file's text; empty for a binary one."""
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")


def anchors_of(document: Path) -> set[str]:
    """The fragments that a Markdown viewer makes from the headings."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    dead = []
    for target in LINK.findall(CODE.sub("", text_of(document))):
        link = urlsplit(target)
        if link.scheme or link.netloc:
            continue
        destination = document.parent / unquote(link.path) if link.path else document
        found = destination.exists() and destination.resolve().is_relative_to(ROOT)
        if found and link.fragment and destination.suffix == ".md":
            found = link.fragment in anchors_of(destination)
        if not found:
            dead.append(target)
    assert not dead, f"{document.name} links to what is not there: {', '.join(dead)}"


def test_no_file_names_a_folder_of_one_machine() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not offenders, f"paths of one machine in {', '.join(offenders)}"


@pytest.mark.parametrize(
    ("line", "is_one_machines"),
    [
        ("see " + "/work" + "/main/notes", True),
        ("open('" + "/root" + "/x')", True),
        ("cd " + "/home/someone" + "/src", True),
        ("WORKDIR /home/planner", False),
        ("https://example.org/work/item", False),
        ("docs/work/notes.md", False),
        ("$HOME/work/runs", False),
    ],
)
def test_what_counts_as_a_path_of_one_machine(line: str, is_one_machines: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) == is_one_machines


# -- tables of the cost model: every file and test that they name is there ---------------------------------------------

PAGES = sorted((ROOT / "docs/cost-model").glob("*.md"))
COSTMODEL = ROOT / "costmodel"
SOURCES = {path.relative_to(COSTMODEL).as_posix() for path in COSTMODEL.rglob("*") if path.is_file()}
TEST_FILES = list((ROOT / "tests").rglob("*.py"))
CODE_SPAN = re.compile(r"`([^`]+)`")


def rows_of_systems(page: Path) -> list[list[str]]:
    """The cells of the table that says where each system is modelled."""
    _, _, table = page.read_text(encoding="utf-8").partition("| system (primer's word) |")
    lines = [line for line in table.splitlines()[1:] if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_says_where_each_system_is_modelled_and_tested(page: Path) -> None:
    rows = rows_of_systems(page)
    assert rows, "the page ends with its table of systems"
    assert all(len(row) == 4 for row in rows)
    for row in rows:
        assert row[1], f"{row[0]} is modelled nowhere"
        assert row[3], f"{row[0]} is tested nowhere"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_and_tests_of_a_page_exist(page: Path) -> None:
    defined = {name for path in TEST_FILES for name in re.findall(r"^def (test_\w+)", text_of(path), re.MULTILINE)}
    files = {path.relative_to(ROOT / "tests").as_posix() for path in TEST_FILES}
    lost: list[str] = []
    for row in rows_of_systems(page):
        for span in CODE_SPAN.findall(row[1]):
            if re.fullmatch(r"[\w/]+\.(py|yaml|csv)", span):
                lost += [] if any(source == span or source.endswith(f"/{span}") for source in SOURCES) else [span]
        for span in CODE_SPAN.findall(row[3]):
            if re.fullmatch(r"[\w/]+\.py", span):
                lost += [] if any(file == span or file.endswith(f"/{span}") for file in files) else [span]
            elif span.startswith("test_"):
                lost += [] if span in defined else [span]
    assert not lost, f"{page.name} names what is not there: {', '.join(lost)}"
