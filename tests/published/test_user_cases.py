"""Every report of user_cases.jsonl has a test, or a reason why it can't have one; docs/fidelity.md counts them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.published.user_cases import EXPECTED_TO_FAIL, REPORTS, TESTED

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "fidelity.md"

NOT_TESTABLE = {
    "uc-046": "the slower of the two plans is not given",
    "uc-054": "width, vocabulary and batch decide the ratio, and none is given; that both ends hold more is tested",
    "uc-059": "no shape but 24 layers and 6.1B parameters, no batch and no length; its framework runs JAX of its own",
    "uc-092": "VeOmni is not in the catalog, and no rule of every framework says it",
    "uc-130": "a cluster has accelerators of one kind, so no plan splits layers between two",
}
STATUSES = ("pass", "expected to fail", "not testable")


@cache
def load_tests() -> None:
    """Importing a module of tests is what registers them."""
    for path in sorted(HERE.glob("test_user_cases_*.py")):
        import_module(f"tests.published.{path.stem}")


def status_of(report: str) -> str:
    """A report with one test that fails is expected to fail, whatever its others say."""
    load_tests()
    if report in NOT_TESTABLE:
        return STATUSES[2]
    return STATUSES[1] if report in EXPECTED_TO_FAIL else STATUSES[0]


def counted() -> dict[str, tuple[int, ...]]:
    """Type of check -> reports, and how many of each status."""
    found = Counter((report["check"]["type"], status_of(name)) for name, report in REPORTS.items())
    types = sorted({kind for kind, _ in found})
    return {kind: tuple(found[kind, status] for status in STATUSES) for kind in types}


def section() -> str:
    """What docs/fidelity.md says of user cases."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.partition("\n## User cases\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_has_a_test_or_a_reason(report: str) -> None:
    load_tests()
    assert TESTED[report] or report in NOT_TESTABLE
    assert not (report in NOT_TESTABLE and report in EXPECTED_TO_FAIL), "a test that fails says why"


def test_reasons_are_of_reports() -> None:
    assert set(NOT_TESTABLE) <= set(REPORTS)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_says_where_it_comes_from(report: str) -> None:
    assert REPORTS[report]["url"].startswith("https://github.com/")
    assert REPORTS[report]["date"]
    assert REPORTS[report]["framework_version"]
    assert REPORTS[report]["right_answer"]


def test_the_document_counts_what_is_tested() -> None:
    table = {
        cells[0].strip("`"): tuple(map(int, cells[2:]))
        for cells in re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", section(), re.MULTILINE)
    }
    assert table.pop("all") == tuple(map(sum, zip(*counted().values(), strict=True)))
    assert table == counted()


def test_the_document_names_what_fails_and_what_is_not_tested() -> None:
    load_tests()
    named = set(re.findall(r"^\| (uc-\d+) \|", section(), re.MULTILINE))
    assert named == set(EXPECTED_TO_FAIL) | set(NOT_TESTABLE)
