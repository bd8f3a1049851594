"""The forms that calls have: one thing, a list, a list in pages, a request that is carried out once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import ValidationError

from planner.client.answers import Answer, Search, Told, search_of
from planner.client.errors import SearchCancelled, SearchFailed, ServerFailed, StillSearching
from planner.client.transport import Call, Transport

T = TypeVar("T", bound=Told)


class Calls:
    """Calls of one server, by their form."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def one(self, kind: type[T], path: str, query: Mapping[str, Any] | None = None) -> T:
        """One thing."""
        return self.read(kind, self._transport.document(Call(method="GET", path=path, query=query or {})))

    def items(self, kind: type[T], path: str) -> tuple[T, ...]:
        """All of a list that has no pages."""
        return self.read_items(kind, self._transport.document(Call(method="GET", path=path)))

    def pages(self, kind: type[T], path: str, query: Mapping[str, str | None], page_size: int) -> Iterator[T]:
        """All of a list, page by page as they are needed."""
        asked: dict[str, Any] = {name: value for name, value in query.items() if value is not None}
        asked["limit"] = page_size
        while True:
            page = self._transport.document(Call(method="GET", path=path, query=asked))
            yield from self.read_items(kind, page)
            if page.get("next") is None:
                return
            asked["cursor"] = page["next"]

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, waits_s: float = 0.0
    ) -> Any:
        """A POST with a key of its own, so that repeating it does nothing twice."""
        keyed = {"Idempotency-Key": uuid4().hex, **(headers or {})}
        return self._transport.document(Call(method="POST", path=path, body=body, headers=keyed, waits_s=waits_s))

    def read(self, kind: type[T], document: Any) -> T:
        """What a document says."""
        try:
            return kind.model_validate(document)
        except ValidationError as error:
            raise self._unreadable(kind.__name__, error) from None

    def read_items(self, kind: type[T], document: Any) -> tuple[T, ...]:
        """What the items of a list say."""
        items = document.get("items") if isinstance(document, dict) else None
        if not isinstance(items, list):
            raise ServerFailed(f"{self._transport.url} answers with no list of {kind.__name__}: is it a planner?")
        return tuple(self.read(kind, item) for item in items)

    def read_search(self, document: Any) -> Search:
        """A search, which is an Answer when it is done."""
        try:
            return search_of(document)
        except (ValidationError, AttributeError) as error:
            raise self._unreadable("Search", error) from None

    def _unreadable(self, what: str, error: Exception) -> ServerFailed:
        where = ""
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            where = f" ({'.'.join(str(part) for part in first['loc'])}: {first['msg']})"
        return ServerFailed(f"{self._transport.url} sends a {what} that this client can't read{where}")


def answer_in(search: Search) -> Answer:
    """The answer of a search that should be over.

    Raises:
        SearchFailed, SearchCancelled, StillSearching: there is none.
    """
    if isinstance(search, Answer):
        return search
    if search.state == "failed":
        raise SearchFailed(search)
    raise SearchCancelled(search) if search.state == "cancelled" else StillSearching(search)


def segment(text: str) -> str:
    """Text as one segment of a path, whatever it holds."""
    return quote(text, safe="")
