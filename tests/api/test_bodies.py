"""Bodies that are no JSON, too large, or sent as something else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.api.asking import ask, pointers, problem, question

_POSTS = ["/v1/searches", "/v1/predictions", "/v1/measurements"]
_JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", _POSTS)
def test_what_is_no_json_is_400(client: httpx.Client, path: str) -> None:
    for body in (
        b"{oops",
        b'{"a": 1',
        b'{"a": "\xff"}',
        b'{"devices": ' + b"9" * 5_000 + b"}",
        b"[" * 200_000,
        b'{"model":' * 20_000 + b"1" + b"}" * 20_000,
        b"'single'",
        b'{"a": 1} {"b": 2}',
    ):
        problem(client.post(path, content=body, headers=_JSON), 400, "invalid-json")


@pytest.mark.parametrize("path", _POSTS)
def test_json_that_is_no_object_is_422(client: httpx.Client, path: str) -> None:
    for body in (b"[]", b"null", b'"text"', b"1", b"NaN", b"true", b""):
        assert pointers(client.post(path, content=body, headers=_JSON)) == [""]


@pytest.mark.parametrize("path", [*_POSTS, f"/v1/searches/{'0' * 32}/cancel", "/searches"])
def test_a_body_that_is_too_large_is_413(client: httpx.Client, path: str) -> None:
    found = problem(client.post(path, content=b" " * 1_000_001, headers=_JSON), 413, "body-too-large")

    assert "1000000" in found["detail"]


@pytest.mark.parametrize("path", _POSTS)
def test_a_body_that_does_not_say_how_long_it_is(client: httpx.Client, path: str) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"a": "'
        for _ in range(30):
            yield b"x" * 50_000

    problem(client.post(path, content=parts(), headers=_JSON), 413, "body-too-large")


def test_a_large_body_that_is_allowed(client: httpx.Client) -> None:
    padded = json.dumps(question()) + " " * 900_000

    assert client.post("/v1/searches", content=padded, headers=_JSON).status_code in (200, 202)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_body_of_another_kind_is_415(client: httpx.Client, kind: str) -> None:
    response = client.post("/v1/searches", content=json.dumps(question()), headers={"Content-Type": kind})

    assert "application/json" in problem(response, 415, "unsupported-media-type")["detail"]


def test_a_compressed_body_is_415(client: httpx.Client) -> None:
    squeezed = gzip.compress(json.dumps(question()).encode())

    response = client.post("/v1/searches", content=squeezed, headers={**_JSON, "Content-Encoding": "gzip"})

    problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.ours+json"])
def test_other_ways_to_say_json(client: httpx.Client, kind: str) -> None:
    asked = question()
    first = ask(client, asked).json()

    again = client.post("/v1/searches", content=json.dumps(asked), headers={"Content-Type": kind})

    assert again.json()["id"] == first["id"]
