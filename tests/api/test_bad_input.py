"""Bad requests: a problem points at what is wrong, nothing is a 500, and nothing outside is ever opened."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest

from tests.api.asking import MODEL, PLAIN, pointers, problem, question

_HOSTILE = ["a\0b", "\0", "half\ud800", "\udfff"]
_ELSEWHERE = ["/etc/passwd", "../../x", "file:///etc/passwd", "http://127.0.0.1:1/x", "~/x", "C:\\x", "x.yaml", "."]
_NAMES = ["model", "cluster", "precision", "optimizer", "framework", "framework_version"]


def _post(client: httpx.Client, **changes: Any) -> httpx.Response:
    """Also what httpx would refuse to send: it is written as JSON escapes."""
    return _send(client, "/v1/searches", question(**changes))


def _send(client: httpx.Client, path: str, body: Any) -> httpx.Response:
    return client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("field", ["model", "cluster", "devices", "global_batch_size", "seq_len"])
def test_what_has_to_be_said(client: httpx.Client, field: str) -> None:
    asked = question()
    del asked[field]

    assert pointers(client.post("/v1/searches", json=asked)) == [f"/{field}"]


def test_unknown_fields_are_refused(client: httpx.Client) -> None:
    assert pointers(_post(client, strategy="auto")) == ["/strategy"]
    assert pointers(_post(client, **{"a/b~c": 1})) == ["/a~1b~0c"]
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": {"tp": 1}, "seed": 1}
    assert pointers(client.post("/v1/predictions", json={"items": [item]})) == ["/items/0/seed"]
    measured = {"plan_id": "0" * 32, "step_time_s": 1.0, "mfu": 0.4}
    assert pointers(client.post("/v1/measurements", json=measured)) == ["/mfu"]


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [
        ("model", "llama3-8b", "llama-3-8b"),
        ("cluster", "dgx-h10", "dgx-h100"),
        ("precision", "bf61", "bf16"),
        ("optimizer", "adam-w", "adamw"),
        ("framework", "megatron-cor", "megatron-core"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(client: httpx.Client, field: str, value: str, nearest: str) -> None:
    found = problem(_post(client, **{field: value}), 422, "unknown-name")

    assert nearest in found["nearest"]
    assert nearest in found["detail"]
    assert [error["pointer"] for error in found["errors"]] == [f"/{field}"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gradient_dtype": "fp16"}, "gradient_dtype"),
        ({"framework_version": "7.1"}, "framework_version"),
        ({"seq_len": 10**9}, "seq_len"),
        ({"min_free_gib": 300}, "min_free_gib"),
        ({"pins": ["tp=1", "offload=disk"]}, "pins[1]"),
        ({"model": MODEL | {"hidden_size": 0}}, "model.hidden_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_is_called_as_in_the_body(client: httpx.Client, change: dict[str, Any], field: str) -> None:
    found = _post(client, **change).json()

    assert found["field"] == field
    assert [error["pointer"] for error in found["errors"]] == [
        f"/{field.replace('[', '/').strip(']').replace('.', '/')}"
    ]


def test_an_unknown_name_in_a_path_comes_with_the_nearest(client: httpx.Client) -> None:
    assert "llama-3-8b" in problem(client.get("/v1/models/llama3-8b"), 404, "not-found")["nearest"]
    assert "dgx-h100" in problem(client.get("/v1/clusters/dgx-h10"), 404, "not-found")["nearest"]
    problem(client.get("/v1/calibrations/nope"), 404, "not-found")


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_path_that_is_none_is_named(client: httpx.Client, method: str) -> None:
    for path in ("/v1/search", "/v1/searches/", "/nope/" + "x" * 1_000):
        detail = problem(client.request(method, path), 404, "not-found")["detail"]
        assert path[:150] in detail
        assert len(detail) < 300


@pytest.mark.parametrize("field", ["pins", "forbids"])
@pytest.mark.parametrize(
    "text", ["tp", "tp=", "tp=x", "tp=0", "tp=4..2", "tp=..", "tp==1", f"tp={'9' * 100}", "tp=\u0661"]
)
def test_a_bad_condition_is_pointed_at(client: httpx.Client, field: str, text: str) -> None:
    assert pointers(_post(client, **{field: ["pp=2..8", text]})) == [f"/{field}/1"]


def test_a_condition_on_what_does_not_exist(client: httpx.Client) -> None:
    assert pointers(_post(client, pins=["pt=8"]), "unknown-name") == ["/pins/0"]
    assert pointers(_post(client, pins=["recompute=all"]), "unknown-name") == ["/pins/0"]
    assert pointers(_post(client, pins=["layers_per_stage=1"])) == ["/pins/0"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("devices", [0, -1, 1.5, 1e308, "16", True, None, 2**53 + 1, 2**70, 10**9]),
        ("global_batch_size", [0, "64", 2**53]),
        ("seq_len", [0, [], 2**53]),
        ("top", [0, 1001, 1.5, 1e4]),
        ("seed", [-1, 2**31]),
        ("max_seconds", [0, -1, 301, 1e308, "5", True, None, float("nan"), float("inf")]),
        ("min_used", [0, 1.01, "1", True, float("nan")]),
        ("min_devices", [0, -1, 1.5, "8", True, 2**53 + 1]),
        ("max_step_time_s", [0, -1, 1e13, "1", True, float("nan")]),
        ("batch_tolerance", [-0.1, 1, "0.1", True, float("nan")]),
        ("shortlist", [0, 1, 1.5, "0.9", True, float("nan")]),
        ("pareto", [1, "true", None]),
        ("min_free_gib", [-1, 1e308, "1", True, 301]),
        ("price_per_device_hour", [0, -1, 5e-324, "1", True, float("-inf")]),
        ("objective", ["speed", 1, None]),
        ("pins", ["tp=8", [8], [None], ["tp=1"] * 101, ["x" * 2001]]),
    ],
)
def test_numbers_that_can_not_be(client: httpx.Client, field: str, values: list[Any]) -> None:
    for value in values:
        where = pointers(_post(client, **{field: value}))
        assert [pointer.split("/")[1] for pointer in where] == [field], value


@pytest.mark.parametrize("field", _NAMES)
def test_names_are_names_of_the_catalog_and_nothing_is_opened(client: httpx.Client, field: str) -> None:
    for name in _ELSEWHERE:
        assert pointers(_post(client, **{field: name}), "unknown-name") == [f"/{field}"], name


@pytest.mark.parametrize("name", _ELSEWHERE)
def test_nothing_is_opened_that_an_object_names(client: httpx.Client, name: str) -> None:
    for cluster in (
        {"extends": name},
        {"name": "ours", "extends": name},
        {"name": "ours", "extends": "dgx-h100", "accelerator": name},
        {"name": "ours", "extends": "dgx-h100", "accelerator": {"name": "x", "extends": name}},
    ):
        (where,) = pointers(_post(client, cluster=cluster), "unknown-name")
        assert _points_at(where, {"cluster": cluster}) == name
    item = {"model": MODEL, "cluster": "dgx-h100", "plan": {"tp": 1, "dp": 8, "global_batch_size": 8, "seq_len": 512}}
    for change in ({"model": name}, {"cluster": name}, {"cluster": {"extends": name}}, {"framework": name}):
        (result,) = _send(client, "/v1/predictions", {"items": [item | change]}).json()["items"]
        assert result["problem"]["type"] == "unknown-name"


@pytest.mark.parametrize("key", ["tokenizer", "_name_or_path", "extends", "base", "auto_map"])
def test_a_model_may_mention_files_which_are_not_read(client: httpx.Client, key: str) -> None:
    asked = question(devices=8, model=MODEL)
    plain = client.post("/v1/searches", json=asked).json()["id"]

    mentions = client.post("/v1/searches", json=asked | {"model": {**MODEL, key: "/etc/passwd"}})

    assert mentions.status_code in (200, 202)
    client.post(f"/v1/searches/{plain}/cancel")
    client.post(f"/v1/searches/{mentions.json()['id']}/cancel")


@pytest.mark.parametrize("text", _HOSTILE)
def test_text_that_no_database_holds(client: httpx.Client, answer: dict[str, Any], text: str) -> None:
    for field in (*_NAMES, "objective"):
        assert pointers(_post(client, **{field: text})) == [f"/{field}"]
    assert pointers(_post(client, pins=["tp=1", text])) == ["/pins/1"]
    for value in ({"name": text}, {"a": [{"b": text}]}, {text: 1}, {"a": {text: 1}}):
        assert {pointer.split("/")[1] for pointer in pointers(_post(client, cluster=value))} == {"cluster"}
        assert {pointer.split("/")[1] for pointer in pointers(_post(client, model=value))} == {"model"}
    assert pointers(_post(client, **{text: 1}))
    measured = {"plan_id": answer["plans"][0]["id"], "step_time_s": 1.0}
    for change in ({"job_id": text}, {"note": text}, {"log_tail": text}, {"environment": {text: text}}):
        assert pointers(_send(client, "/v1/measurements", measured | change))
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": {"tp": 1, "schedule": text}}
    assert pointers(_send(client, "/v1/predictions", {"items": [item]}))


def test_objects_too_deep_too_many_or_too_large(client: httpx.Client) -> None:
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    for value in (deep, {"a": list(range(20_001))}, {"a": 2**63}, {"a": float("nan")}, {"a": float("-inf")}):
        assert pointers(_post(client, model=value)) == ["/model"]
        assert pointers(_post(client, cluster=value)) == ["/cluster"]


@pytest.mark.parametrize("value", [1, None, True, [], 1.5, "", "x" * 201])
def test_what_is_neither_a_name_nor_an_object(client: httpx.Client, value: Any) -> None:
    assert pointers(_post(client, model=value)) == ["/model"]
    assert pointers(_post(client, cluster=value)) == ["/cluster"]


@pytest.mark.parametrize("key", list(MODEL))
def test_a_model_with_a_field_that_makes_no_sense(client: httpx.Client, key: str) -> None:
    """Whatever stands there, it is answered, or refused with a pointer into the model."""
    for value in (None, 0, -1, 2**62, "x", [], {}, 1.5, 1e308, True):
        response = _post(client, model={**MODEL, key: value})
        if response.status_code == 422:
            assert {error["pointer"].split("/")[1] for error in response.json()["errors"]} <= {"model"}, response.text
        else:
            client.post(f"/v1/searches/{response.json()['id']}/cancel").raise_for_status()


@pytest.mark.parametrize("price", [0, 5e-324])
def test_a_cluster_whose_price_is_next_to_nothing_has_no_costs(client: httpx.Client, price: float) -> None:
    cluster = {"extends": "dgx-h100", "price_per_device_hour": price}

    assert pointers(_post(client, cluster=cluster, objective="cost")) == ["/price_per_device_hour"]


def test_an_object_that_is_no_model(client: httpx.Client) -> None:
    assert pointers(_post(client, model={})) == ["/model"]
    assert pointers(_post(client, model={**MODEL, "hidden_size": -1})) == ["/model/hidden_size"]
    assert pointers(_post(client, cluster={"name": "ours"})) == ["/cluster"]


def test_a_problem_points_at_what_was_sent(client: httpx.Client) -> None:
    """Readers of models and clusters call a field as they like; what they derive it from is another one."""
    assert pointers(_post(client, model={**MODEL, "num_hidden_layers": 1_000_000})) == ["/model"]
    plan = {"tp": 1, "dp": 8, "global_batch_size": 8, "seq_len": 512}
    items = [{"model": {**MODEL, "num_hidden_layers": 1_000_000}, "cluster": "dgx-h100", "plan": plan}]
    (result,) = _send(client, "/v1/predictions", {"items": items}).json()["items"]
    assert [error["pointer"] for error in result["problem"]["errors"]] == ["/items/0/model"]


@pytest.mark.parametrize("text", ["x" * 201, "".join(random.Random(1).choices("abcdefghij0123456789-", k=9_000))])
def test_a_name_that_no_index_holds(client: httpx.Client, text: str) -> None:
    assert _pointers_of_names(client, text) == _OF_NAMES


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\x1b[31mred", "a\u202eb", "\u2066a", "a\u200bb", "a\u2028b", "\x7f"])
def test_a_name_that_would_not_be_shown_as_it_is(client: httpx.Client, text: str) -> None:
    assert _pointers_of_names(client, text) == _OF_NAMES
    for field in _NAMES:
        assert pointers(_post(client, **{field: text})) == [f"/{field}"]


def test_names_of_other_languages(client: httpx.Client) -> None:
    for name in ("Модель 8B", "模型-8b", "modèle (8 B)", "x" * 200):
        cluster = {"extends": "dgx-h100", "name": name}
        response = _post(client, model={**MODEL, "name": name}, cluster=cluster, max_seconds=1)
        assert response.json()["scenario"]["model"] == name
        assert response.json()["scenario"]["cluster"] == name


def test_whole_numbers_may_be_written_with_a_point(client: httpx.Client) -> None:
    asked = question(devices=16, top=1)
    first = _send(client, "/v1/searches", asked)

    same = _send(
        client, "/v1/searches", {name: float(value) if value in (16, 1) else value for name, value in asked.items()}
    )

    assert same.json()["id"] == first.json()["id"]
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": {name: float(value) for name, value in PLAIN.items()}}
    (result,) = _send(client, "/v1/predictions", {"items": [item]}).json()["items"]
    assert result["status"] == "fits"


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"devices": 0}, "it must be at least 1"),
        ({"devices": "16"}, "a whole number is expected"),
        ({"devices": 1.5}, "a whole number is expected"),
        ({"max_seconds": 0}, "it must be more than 0"),
        ({"max_seconds": "5"}, "a number is expected"),
        ({"model": "x" * 201}, "it must have at most 200 characters"),
        ({"pins": "tp=1"}, "a list is expected"),
        ({"objective": "speed"}, "'step_time', 'cost' or 'fewest_devices' is expected"),
        ({"nope": 1}, "there is no such field"),
    ],
)
def test_one_style_of_words(client: httpx.Client, change: dict[str, Any], detail: str) -> None:
    assert [error["detail"] for error in problem(_post(client, **change), 422, "invalid-input")["errors"]] == [detail]


def _pointers_of_names(client: httpx.Client, text: str) -> list[str]:
    """Where a question is wrong that has the name in each of these places."""
    accelerator = {"extends": "h100-sxm5-80gb", "name": text}
    return [
        *pointers(_post(client, model={**MODEL, "name": text})),
        *pointers(_post(client, model={**MODEL, "_name_or_path": text})),
        *pointers(_post(client, model={**MODEL, "model_type": text})),
        *pointers(_post(client, cluster={"extends": "dgx-h100", "name": text})),
        *pointers(_post(client, cluster={"extends": "dgx-h100", "name": "ours", "accelerator": accelerator})),
    ]


_OF_NAMES = ["/model/name", "/model/_name_or_path", "/model/model_type", "/cluster/name", "/cluster/accelerator/name"]


def _points_at(pointer: str, document: Any) -> Any:
    for part in pointer.split("/")[1:]:
        document = document[part]
    return document
