"""What a browser may be led to send, methods, unknown paths, and headers that keep pages safe."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from tests.api.asking import UNKNOWN_ID, problem, question
from tests.api.conftest import Live

_ALLOWED = {
    "/v1/searches": "GET, HEAD, OPTIONS, POST",
    f"/v1/searches/{UNKNOWN_ID}": "GET, HEAD, OPTIONS",
    f"/v1/searches/{UNKNOWN_ID}/cancel": "OPTIONS, POST",
    f"/v1/searches/{UNKNOWN_ID}/events": "GET, HEAD, OPTIONS",
    "/v1/plans": "GET, HEAD, OPTIONS",
    f"/v1/plans/{UNKNOWN_ID}": "GET, HEAD, OPTIONS",
    "/v1/plans/compare": "GET, HEAD, OPTIONS",
    "/v1/predictions": "OPTIONS, POST",
    "/v1/measurements": "GET, HEAD, OPTIONS, POST",
    f"/v1/measurements/{UNKNOWN_ID}": "GET, HEAD, OPTIONS",
    "/v1/models": "GET, HEAD, OPTIONS",
    "/v1/models/llama-3-8b": "GET, HEAD, OPTIONS",
    "/v1/clusters": "GET, HEAD, OPTIONS",
    "/v1/calibrations": "GET, HEAD, OPTIONS",
    "/healthz": "GET, HEAD, OPTIONS",
    "/readyz": "GET, HEAD, OPTIONS",
    "/metrics": "GET, HEAD, OPTIONS",
    "/openapi.json": "GET, HEAD, OPTIONS",
}


@pytest.fixture(scope="module")
def open_client(open_url: str) -> Any:
    """Of the server without keys."""
    with httpx.Client(base_url=open_url, trust_env=False, verify=False, timeout=60.0) as client:
        yield client


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://127.0.0.1", "http://[bad", "\xff"])
def test_another_sites_page_may_not_post(client: httpx.Client, origin: str) -> None:
    headers = [(b"Origin", origin.encode("latin-1"))]

    problem(client.post("/v1/searches", json=question(), headers=headers), 403, "forbidden")
    problem(client.post(f"/v1/searches/{UNKNOWN_ID}/cancel", headers=headers), 403, "forbidden")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_says_that_it_comes_from_elsewhere(client: httpx.Client, site: str) -> None:
    problem(client.post("/v1/searches", json=question(), headers={"Sec-Fetch-Site": site}), 403, "forbidden")
    assert client.get("/v1/models", headers={"Sec-Fetch-Site": site}).status_code == 200


def test_our_own_pages_may_post(live: Live, client: httpx.Client) -> None:
    own = {"Origin": live.url, "Sec-Fetch-Site": "same-origin"}

    assert client.post("/v1/searches", json=question(), headers=own).status_code == 202


@pytest.mark.parametrize(
    "host", ["elsewhere.example", "127.0.0.1.elsewhere.example", "", "0.0.0.0", "[::2]", "localhost.elsewhere", "\xff"]
)
def test_without_keys_other_names_are_not_answered(open_client: httpx.Client, host: str) -> None:
    for path in ("/v1/models", "/healthz", "/", "/nope"):
        problem(open_client.get(path, headers=[(b"Host", host.encode("latin-1"))]), 421, "misdirected")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.2:8000", "localhost:1", "LOCALHOST", "localhost.:80", "[::1]:80"]
)
def test_without_keys_loopback_names_are_answered(open_client: httpx.Client, host: str) -> None:
    assert open_client.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", list(_ALLOWED))
def test_other_methods_are_405_with_those_that_are_allowed(client: httpx.Client, path: str) -> None:
    asked = client.options(path)
    assert (asked.status_code, asked.content, asked.headers["allow"]) == (204, b"", _ALLOWED[path])
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "FOO"):
        if method not in _ALLOWED[path]:
            response = client.request(method, path)
            problem(response, 405, "method-not-allowed")
            assert response.headers["allow"] == _ALLOWED[path]
    if "HEAD" not in _ALLOWED[path]:
        response = client.head(path)
        assert (response.status_code, response.content) == (405, b"")
        assert response.headers["allow"] == _ALLOWED[path]


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/v1",
        "/v1/",
        "/v1/searches/",
        "/v1//searches",
        "/V1/searches",
        "/v1/searches;x",
        f"/v1/searches/{UNKNOWN_ID}/nope",
        "/v1/models/..%2f..%2fetc%2fpasswd",
        "/%00",
        "/%ff",
        "/docs/",
        "/redoc",
        "/static/../api/auth.py",
        "/" + "x" * 5_000,
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_paths_that_are_not_there(client: httpx.Client, path: str, method: str) -> None:
    problem(client.request(method, path), 404, "not-found")


@pytest.mark.parametrize("path", ["/v1/models/%00", "/v1/clusters/%00", "/v1/calibrations/%00", "/v1/plans/%00"])
def test_a_path_with_what_no_name_has(client: httpx.Client, path: str) -> None:
    problem(client.get(path), 422, "invalid-input")


@pytest.mark.parametrize("path", ["/v1/models", "/nope", "/v1/models/nope", "/healthz", "/searches", "/metrics"])
def test_every_response_keeps_browsers_safe(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers

    assert headers["content-security-policy"].startswith("default-src 'self'; style-src 'self' 'unsafe-inline'")
    assert "unsafe-eval" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_a_request_has_an_id_which_may_be_given(live: Live, client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "job-7.a_b"}).headers["x-request-id"] == "job-7.a_b"
    for unusable in ("", "a b", "x" * 65, '"', "a\tb"):
        given = client.get("/healthz", headers={"X-Request-Id": unusable}).headers["x-request-id"]
        assert len(given) == 32, unusable
    lines = [json.loads(line) for line in live.server.written().splitlines() if line.startswith("{")]
    assert [line["path"] for line in lines if line.get("request_id") == "job-7.a_b"] == ["/healthz"]


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/models?model=%FF%00 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \xff\xfe",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\0b",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1",
        b"GET /v1/models HTTP/1.1",
        b"GET //v1/models HTTP/1.1\r\nHost: 127.0.0.1",
        b"POST /v1/searches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1",
        b"POST /v1/searches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1",
        b"GET http://elsewhere.example/ HTTP/1.1\r\nHost: elsewhere.example",
    ],
    ids=range(9),
)
def test_bytes_that_no_client_library_sends(open_url: str, open_client: httpx.Client, request_line: bytes) -> None:
    address = httpx.URL(open_url)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as connection:
        connection.sendall(request_line + b"\r\nConnection: close\r\n\r\n")
        status = connection.recv(4096).split(b" ", 2)[1]

    assert status in (b"200", b"400", b"401", b"404", b"421", b"422")
    assert open_client.get("/healthz").status_code == 200
