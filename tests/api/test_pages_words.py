"""What pages say, and how it can be read: words, the form's reading, and the contrast of the two palettes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib import resources

import pytest

from api.dashboard import words
from api.dashboard.accept import HTML, JSON, preferred
from api.dashboard.searches.form import empty_form, question_of
from api.problems import MEDIA_TYPE
from api.schemas.requests import SearchBody

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "just now"), (4, "just now"), (59, "59 s ago"), (61, "1 min ago"), (7_300, "2 h ago"), (90_000, "1 day ago")],
)
def test_ages(seconds: float, said: str) -> None:
    assert words.age(NOW - timedelta(seconds=seconds), NOW) == said
    assert words.age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == said


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "less than 0.1 %"), (0.0104, "1.1 %"), (0.25, "25.0 %"), (0.5001, "50.1 %")]
)
def test_a_gap_is_never_rounded_down(share: float, said: str) -> None:
    assert words.gap(share) == said


def test_what_is_minimised_has_its_unit() -> None:
    assert words.best(5.3621, "step_time") == "5.362 s"
    assert words.best(1234.5, "cost") == "1,234.50 per step"
    assert words.best(1, "fewest_devices") == "1 device"
    assert words.best(None, "step_time") == ""


def test_steps_of_a_search_are_said_and_unknown_ones_are_not() -> None:
    assert words.step("candidates", {"meshes": 13172, "legal": 2000}, "step_time").startswith("2,000 of 13,172")
    assert "unknown" in words.step("incumbents", {"plans": 3, "best": None}, "step_time")
    assert words.step("dreaming", {}, "step_time") == ""
    assert words.step("candidates", {}, "step_time") == ""


def test_the_empty_form_is_a_question_with_the_defaults_of_the_api() -> None:
    body, form = question_of(empty_form().typed)
    assert form.errors == {}
    assert body is not None
    plain = SearchBody(
        model=body.model,
        cluster=body.cluster,
        devices=body.devices,
        global_batch_size=body.global_batch_size,
        seq_len=body.seq_len,
    )
    assert body.model_dump() == plain.model_dump()


def test_conditions_are_read_however_they_are_set_apart() -> None:
    body, _ = question_of({**empty_form().typed, "pins": " tp = 8\npp=4, 8 ,16\n\tdp=4.. vpp=1"})
    assert body is not None
    assert body.pins == ["tp=8", "pp=4,8,16", "dp=4..", "vpp=1"]


@pytest.mark.parametrize("text", ["8.5", "1e3", "٨", "0x10", "8" * 40, "nan"])
def test_whole_numbers_are_digits(text: str) -> None:
    body, form = question_of({**empty_form().typed, "devices": text})
    assert body is None
    assert set(form.errors) == {"devices"}


@pytest.mark.parametrize("text", ["nan", "inf", "1_000 s", "-1"])
def test_deadlines_are_positive_numbers(text: str) -> None:
    body, form = question_of({**empty_form().typed, "max_seconds": text})
    assert body is None
    assert set(form.errors) == {"max_seconds"}


def _palettes() -> list[dict[str, str]]:
    sheet = (resources.files("api.dashboard") / "static" / "planner.css").read_text(encoding="utf-8")
    roots = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", root)) for root in roots]


def _luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", _palettes(), ids=["light", "dark"])
def test_contrast_is_aa(palette: dict[str, str]) -> None:
    backs = ["back", "raised", "good-back", "fair-back", "bad-back", "wait-back"]
    pairs = [(text, back) for text in ("text", "quiet", "link") for back in backs]
    pairs += [(tone, f"{tone}-back") for tone in ("good", "fair", "bad", "wait")]
    pairs += [("bad", "back"), ("button-text", "button")]
    for text, back in pairs:
        assert _contrast(palette[text], palette[back]) >= 4.5, (text, back)
    # Borders of inputs, and what tells a state apart.
    for edge in ("edge", "good", "bad", "wait"):
        assert _contrast(palette[edge], palette["back"]) >= 3.0, edge


@pytest.mark.parametrize(
    ("accept", "page", "problem"),
    [
        ("", "html", "json"),
        ("*/*", "html", "json"),
        ("text/html", "html", "html"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html", "html"),
        ("text/html, application/json;q=0.1", "html", "html"),
        ("text/html;q=0.2, application/json;q=0.1", "html", "html"),
        ("TEXT/HTML ; level=1 ; q=0.5 , Application/JSON;Q=0.4", "html", "html"),
        ("application/json;q=0.1, text/*", "html", "html"),
        ("application/json", "json", "json"),
        ("application/json, text/plain, */*", "json", "json"),
        ("application/json, text/html", "json", "json"),
        ("application/json, text/html;q=0.9", "json", "json"),
        ("application/*, text/html;q=0.9", "json", "json"),
        ("text/html;q=0, */*", "json", "json"),
        ("application/problem+json, text/html;q=0.9", "html", "json"),
        ("image/png", "html", "json"),
        ("text/html;q=2, application/json;q=nan", "html", "json"),
        (",;q=1,;;", "html", "json"),
    ],
)
def test_who_gets_a_page_is_weighed(accept: str, page: str, problem: str) -> None:
    assert preferred(accept, (HTML, JSON)) == (HTML if page == "html" else JSON)
    assert (preferred(accept, (MEDIA_TYPE, JSON, HTML)) == HTML) == (problem == "html")
