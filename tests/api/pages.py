"""A server with pages for tests, and what a page holds as a reader would find it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from db.records import NewSearch
from db.store import Store
from planner.question import Question
from planner.resolving import request_of
from planner.search.answer import answer_to
from planner.search.request import SearchRequest
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, result_of, scenario_record
from tests.databases import PostgresServer
from tests.e2e.servers import Server, serving

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM = {
    "model": "llama-3.2-1b",
    "cluster": "dgx-h100",
    "devices": "8",
    "global_batch_size": "64",
    "seq_len": "4096",
    "precision": "bf16",
    "framework": "megatron-core",
    "objective": "step_time",
    "price_per_device_hour": "",
    "pins": "",
    "forbids": "",
    "allow": "",
    "top": "3",
    "max_seconds": "60",
    "optimizer": "adamw",
    "gradient_dtype": "",
    "framework_version": "",
    "calibration": "",
    "min_free_gib": "",
    "min_used": "0.9",
    "min_devices": "",
    "max_step_time_s": "",
    "batch_tolerance": "0",
    "shortlist": "",
    "pareto": "no",
    "explain": "no",
    "seed": "0",
}
_VOID = frozenset({"meta", "link", "input", "br"})


@dataclass(kw_only=True)
class Page(HTMLParser):
    """A page taken apart; refuses tags that aren't closed.

    Attributes:
        tags: name and attributes, in order.
        text: everything that is read, in one line.
    """

    source: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == [], self.open

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def attributes(self, tag: str, **having: str) -> list[dict[str, str]]:
        """Attributes of the tags of that name that have these values."""
        return [found for name, found in self.tags if name == tag and having.items() <= found.items()]

    def with_id(self, identifier: str) -> dict[str, str]:
        """The one tag of that id."""
        (found,) = [attributes for _, attributes in self.tags if attributes.get("id") == identifier]
        return found


@dataclass(kw_only=True)
class Site:
    """A running server and the store behind it.

    Attributes:
        first: its list before anything was asked.
    """

    server: Server
    store: Store
    first: Page

    def get(self, path: str, status: int = 200, **headers: str) -> Page:
        """A page as a browser gets it."""
        response = self.server.client.get(path, headers=BROWSER | headers)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        return Page(source=response.text)

    def ask(self, **typed: str) -> httpx.Response:
        """Send the form; None of what is left out is sent."""
        return self.server.client.post("/searches", data=FORM | typed, headers=BROWSER)

    def store_search(self, request: SearchRequest, **other: Any) -> str:
        """Store a search that waits and that no runner takes, for it is another's already; its id."""
        new = self.put(request, **other)
        now = datetime.now(UTC)
        with self.store.writing() as repos:
            repos.searches.add(new, now)
            assert repos.searches.claim_this(new.id, "another", now, now + timedelta(hours=1)) is not None
        return new.id

    def store_answer(self, request: SearchRequest, answer: dict[str, Any], **other: Any) -> str:
        """Store an answer; the search's id. ``other`` are fields of the search."""
        new, now = self.put(request, **other), datetime.now(UTC)
        answer = answer | {"plans": [plan | {"id": uuid4().hex} for plan in answer["plans"]]}
        with self.store.writing() as repos:
            return repos.searches.store_answer(new, result_of(answer, now), now).id

    def put(self, request: SearchRequest, **other: Any) -> NewSearch:
        """A search that nobody else has asked, with what it is about in the store."""
        now = datetime.now(UTC)
        with self.store.writing() as repos:
            repos.scenarios.put(scenario_record(request.scenario), now)
            repos.calibrations.put(calibration_record(request.scenario.calibration), now)
        return replace(new_search(request, None), **({"key": uuid4().hex} | other))


@contextmanager
def running_site(request: pytest.FixtureRequest, folder: Path) -> Iterator[Site]:
    """A site on the database that ``request.param`` names."""
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'planner.db'}"
        if request.param == "postgresql":
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            url = postgres.create()
            stack.callback(postgres.drop, url)
        server = stack.enter_context(serving(url, folder))
        store = stack.enter_context(Store.open(url))
        first = server.client.get("/searches", headers=BROWSER)
        yield Site(server=server, store=store, first=Page(source=first.text))


def small_request(**how: Any) -> SearchRequest:
    """A question that takes a moment."""
    asked = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "devices": 8, "global_batch_size": 64, "seq_len": 4096}
    return request_of(Question(**(asked | {"top": 3} | how)))


def small_answer(request: SearchRequest, **changed: Any) -> dict[str, Any]:
    """Its answer, found here."""
    return answer_to(request) | changed


def cells(page: Page) -> list[str]:
    """Texts of the ranked table's first row."""
    (body,) = re.findall(r'<table class="ranked">.*?<tbody>\s*<tr[^>]*>(.*?)</tr>', page.source, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", body, re.DOTALL)]


def shown_in(page: Page) -> dict[str, str]:
    """What stands in the form to ask, and would be sent."""
    texts = dict(re.findall(r'<textarea [^>]*name="(\w+)"[^>]*>\n(.*?)</textarea>', page.source, re.DOTALL))
    selects = re.findall(r'<select [^>]*name="(\w+)"[^>]*>(.*?)</select>', page.source, re.DOTALL)
    chosen = {name: re.findall(r'value="([^"]*)" selected', options) for name, options in selects}
    inputs = {name: page.with_id(f"ask-{name}")["value"] for name in FORM if name not in texts | chosen}
    return (
        {name: unescape(text) for name, text in texts.items()}
        | inputs
        | {name: chosen[name][0] for name in FORM if name in chosen}
    )
