"""ETags: a client that has a body already gets 304 and none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.asking import lasting
from tests.processes import eventually

_PATHS = [
    "/v1/searches",
    "/v1/searches/{search}",
    "/v1/plans",
    "/v1/plans?sort=mfu&limit=1",
    "/v1/plans/{plan}",
    "/v1/plans/compare?plan={plan}&plan={other}",
    "/v1/measurements",
    "/v1/measurements/{measurement}",
    "/v1/models",
    "/v1/models/llama-3-8b",
    "/v1/clusters",
    "/v1/clusters/dgx-h100",
    "/v1/calibrations",
    "/v1/calibrations/{calibration}",
]
_FOR_EVER = ("/v1/searches/{search}", "/v1/plans/", "/v1/measurements/")


@pytest.fixture(scope="module")
def ids(client: httpx.Client, answer: dict[str, Any]) -> dict[str, str]:
    """Of one thing of each kind."""
    plan = answer["plans"][0]["id"]
    measured = client.post("/v1/measurements", json={"plan_id": plan, "step_time_s": 1.0}).json()
    return {
        "search": answer["id"],
        "plan": plan,
        "other": answer["plans"][1]["id"],
        "measurement": measured["id"],
        "calibration": answer["search"]["calibration_id"],
    }


@pytest.mark.parametrize("path", _PATHS)
def test_everything_has_an_etag(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    url = path.format(**ids)
    first = client.get(url)
    tag = first.headers["etag"]

    assert first.status_code == 200
    assert client.get(url).content == first.content
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = client.get(url, headers={"If-None-Match": header})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == tag
        assert same.headers["cache-control"] == first.headers["cache-control"]
    for header in ('"other"', tag.strip('"'), f"x{tag}", "", "ü".encode().decode("latin-1")):
        other = client.get(url, headers=[(b"If-None-Match", header.encode("latin-1"))])
        assert (other.status_code, other.content) == (200, first.content), header
    if path.startswith(_FOR_EVER):
        assert "immutable" in first.headers["cache-control"]
        assert first.headers["cache-control"].startswith("private")
    else:
        assert first.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("path", _PATHS)
def test_head_is_get_without_the_body(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    url = path.format(**ids)
    got, headed = client.get(url), client.head(url)

    assert (headed.status_code, headed.content) == (200, b"")
    for name in ("etag", "content-type", "content-length", "cache-control"):
        assert headed.headers[name] == got.headers[name]


def test_the_tag_of_a_search_changes_with_its_state(client: httpx.Client) -> None:
    path = f"/v1/searches/{client.post('/v1/searches', json=lasting()).json()['id']}"
    assert eventually(lambda: client.get(path).json()["state"] == "running", 30)
    running = client.get(path)
    assert (running.headers["cache-control"], running.headers["retry-after"]) == ("private, no-cache", "1")
    same = client.get(path, headers={"If-None-Match": running.headers["etag"]})
    assert (same.status_code, same.headers["retry-after"]) == (304, "1")

    client.post(f"{path}/cancel").raise_for_status()
    assert eventually(lambda: client.get(path).json()["state"] == "cancelled", 10)
    over = client.get(path, headers={"If-None-Match": running.headers["etag"]})

    assert over.status_code == 200
    assert over.headers["etag"] != running.headers["etag"]
    assert "immutable" in over.headers["cache-control"]
    assert "retry-after" not in over.headers
