"""The OpenAPI document as a judge: every response that a test gets has to be one that the document promises."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

import httpx
import jsonschema_rs

PROBLEM = "application/problem+json"
# No operation has these: there is no such path, or no such method on it.
_OF_NO_OPERATION = {404, 405, 413, 415, 421}


class Contract:
    """The document of an application.

    Attributes:
        judged: how many responses were held against it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.judged = 0
        self._validators: dict[str, Any] = {}

    def check(self, response: httpx.Response) -> None:
        """Fail unless the document has this response. To be called by httpx for every response."""
        request = response.request
        operation = self._operation(request.method, request.url.path)
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind == "text/event-stream":
            return
        response.read()
        where = f"{request.method} {request.url} answered {response.status_code} {response.text[:500]}"
        assert response.status_code < 500 or response.status_code == 503, where
        if operation is None:
            # The document itself and the pages for people are not in it.
            expected = _OF_NO_OPERATION | ({204} if request.method == "OPTIONS" else set())
            assert response.status_code in expected or not request.url.path.startswith("/v1/"), where
            if kind == PROBLEM and request.method != "HEAD":
                self._judge("Problem", response, where)
            return
        promised = self._resolved(operation["responses"].get(str(response.status_code)))
        if promised is None:
            assert response.status_code in _OF_NO_OPERATION, f"{where}: not in the document"
            promised = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
        self._check_headers(promised, response, where)
        if request.method == "HEAD" or response.status_code in (204, 304):
            assert response.content == b"", where
            return
        assert kind in promised["content"], f"{where}: {kind} is not promised"
        schema = promised["content"][kind]["schema"]
        if kind.endswith("json"):
            self._judge(schema.get("$ref", "").rpartition("/")[2], response, where)

    def _judge(self, name: str, response: httpx.Response, where: str) -> None:
        assert name in self.document["components"]["schemas"], where
        if name not in self._validators:
            schema = {"$ref": f"#/components/schemas/{name}", "components": self.document["components"]}
            self._validators[name] = jsonschema_rs.Draft202012Validator(schema)
        wrong = [error.message for error in self._validators[name].iter_errors(json.loads(response.content))]
        assert not wrong, f"{where}: {wrong[:3]}"
        self.judged += 1
        if name == "Problem":
            assert response.headers["content-type"] == PROBLEM, where
            assert response.json()["status"] == response.status_code, where

    def _check_headers(self, promised: dict[str, Any], response: httpx.Response, where: str) -> None:
        for name in ("location", "retry-after", "etag", "preference-applied", "idempotency-replayed"):
            if name in response.headers:
                assert name in {header.lower() for header in promised.get("headers", {})}, f"{where}: {name}"

    def _resolved(self, found: dict[str, Any] | None) -> dict[str, Any] | None:
        if found is None or "$ref" not in found:
            return found
        resolved: dict[str, Any] = self.document["components"]["responses"][found["$ref"].rpartition("/")[2]]
        return resolved

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        # A literal path goes before one with a parameter, as in the application.
        ordered = sorted(self.document["paths"].items(), key=lambda item: "{" in item[0])
        return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods) for path, methods in ordered]

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        asked = "get" if method == "HEAD" else method.lower()
        for pattern, methods in self._paths:
            if pattern.fullmatch(path):
                found: dict[str, Any] | None = methods.get(asked)
                return found
        return None
