"""``Prefer`` after RFC 7240: lists over several lines, quotes, parameters; what can't be read is ignored."""

from __future__ import annotations

import httpx
import pytest

from api.preferences import wait_of
from tests.api.asking import lasting


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["wait=5"], 5),
        (["WAIT = 5"], 5),
        (['wait="5"'], 5),
        (["respond-async, wait=5"], 5),
        (["respond-async", "wait=5"], 5),
        (["wait=5; foo=bar, wait=6", "wait=7"], 5),
        (['foo="a, wait=3"; bar="wait=4", wait=5'], 5),
        ([r'foo="\", wait=3", wait=5'], 5),
        ([",, @@@ ,wait=5"], 5),
        (["wait=61"], 60),
        ([f"wait={'9' * 500}"], 60),
        (["x" * 5_000 + ", wait=3", "wait=5"], 5),
        (["foo; wait=3"], None),
        (["wait=soon"], None),
        (["wait=-1"], None),
        (["wait=1.5"], None),
        (["wait=\u0665"], None),
        (["wait"], None),
        (['wait="'], None),
        (["await=3"], None),
        ([""], None),
        ([], None),
    ],
)
def test_how_long_to_wait(lines: list[str], seconds: float | None) -> None:
    assert wait_of(lines, 60.0) == seconds


@pytest.mark.parametrize("line", ['"' * 1_000, '\\"' * 500, "a;" * 500, " " * 1_000])
def test_no_line_takes_long(line: str) -> None:
    assert wait_of([line] * 50, 60.0) is None


def test_several_lines_and_what_nobody_knows(client: httpx.Client) -> None:
    headers = [
        ("Prefer", 'handling=lenient; x="wait=50"'),
        ("Prefer", "y" * 3_000),
        ("Prefer", "return=minimal, wait=1"),
    ]

    response = client.post("/v1/searches", json=lasting(), headers=headers)

    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"
    client.post(f"/v1/searches/{response.json()['id']}/cancel").raise_for_status()
