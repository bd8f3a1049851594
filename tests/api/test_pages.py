"""The pages on a running server, with a store on each of the two databases."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest

from costmodel.catalog.model_catalog import load_model
from db.keys import digest_of_secret, new_secret
from db.records import ApiKey
from db.store import Store
from planner.meanings import meaning_of
from tests.api.pages import BROWSER, FORM, Page, Site, cells, running_site, small_answer, small_request
from tests.databases import BACKENDS
from tests.e2e.servers import Server, serving
from tests.processes import eventually


@pytest.fixture(scope="module", params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(request, tmp_path_factory.mktemp("pages")) as running:
        yield running


@pytest.fixture(scope="module")
def answered(site: Site) -> str:
    """The path of a search that the form asked and that is done."""
    response = site.ask(pins="tp = 1, 2\npp=1..4")
    assert response.status_code == 303, response.text
    path = response.headers["location"]
    assert re.fullmatch(r"/searches/[0-9a-f]{32}", path)
    assert eventually(lambda: site.server.state(path.rpartition("/")[2]) == "done", 60)
    return str(path)


def test_the_first_page_is_the_list(site: Site) -> None:
    response = site.server.client.get("/", headers=BROWSER)
    assert response.status_code == 307
    assert response.headers["location"] == "/searches"


def test_an_empty_list_says_how_to_begin(site: Site) -> None:
    assert "No searches yet: ask above, or run planner suggest --server" in site.first.text
    assert site.first.attributes("table") == []
    assert site.first.with_id("ask-model")["value"] == "llama-3.1-70b"


def test_every_field_has_a_label_and_an_explanation(site: Site) -> None:
    for name in FORM:
        field = site.first.with_id(f"ask-{name}")
        assert field["name"] == name
        assert site.first.attributes("label", **{"for": f"ask-{name}"})
        for described_by in field["aria-describedby"].split():
            site.first.with_id(described_by)
    offered = {option["value"] for option in site.first.attributes("option")}
    assert {"llama-3.1-405b", "dgx-h100", "megatron-core", "cost"} <= offered


def test_the_form_asks_and_the_page_shows_the_ranking(site: Site, answered: str) -> None:
    page = site.get(answered)
    answer = site.server.search(answered.rpartition("/")[2])
    assert "Proven best of the space searched" in page.text
    assert "llama-3.2-1b on 8 × h100-sxm5-80gb" in page.text
    assert "tp=1,2, pp=1..4" in page.text
    assert f"{answer['best']:.3f} s" in page.text
    first = answer["plans"][0]
    plan, prediction = first["plan"], first["prediction"]
    row = cells(page)
    assert row[:5] == [
        "1",
        "{:.3f}{:.3f}–{:.3f}".format(prediction["step_time_s"], *prediction["step_time_interval_s"]),
        "",
        f"{prediction['tokens_per_s_per_device']:,.0f}",
        f"{100 * prediction['mfu']:.1f}",
    ]
    assert row[5] == str(plan["tp"])
    assert row[-1] == str(plan["devices_used"])
    peak = prediction["memory"]["peak_bytes"] / 2**30
    assert f"{peak:.1f}" in row
    for rule, count in answer["eliminated"].items():
        assert f"{rule} {count:,} {meaning_of(rule)}" in page.text
    assert answer["search"]["cost_model"] in page.text
    assert "http-equiv" not in page.source


def test_a_plan_that_is_slower_says_why_in_one_click(site: Site, answered: str) -> None:
    page = site.get(answered)
    first, second = (entry["id"] for entry in site.server.search(answered.rpartition("/")[2])["plans"][:2])
    (why,) = page.attributes("a", href=f"/compare?plan={first}&plan={second}")
    assert why["title"] == "Why is plan 2 slower than plan 1?"
    assert page.attributes("a", href=f"/plans/{second}")
    chosen = site.get(f"{answered}?plan={second}")
    assert [box["value"] for box in chosen.attributes("input", name="plan") if "checked" in box] == [second]


def test_the_table_is_sorted_by_what_the_address_says(site: Site, answered: str) -> None:
    plans = site.server.search(answered.rpartition("/")[2])["plans"]
    by_peak = sorted(plans, key=lambda entry: -entry["prediction"]["memory"]["peak_bytes"])
    page = site.get(f"{answered}?sort=peak&order=desc")
    assert [box["value"] for box in page.attributes("input", name="plan")] == [entry["id"] for entry in by_peak]
    assert page.attributes("th", **{"aria-sort": "descending"})
    assert page.with_id("by-peak")["href"] == f"{answered}?sort=peak"
    assert page.with_id("by-mfu")["href"] == f"{answered}?sort=mfu&order=desc"
    assert page.with_id("by-rank")["href"] == answered
    (link,) = [a["href"] for a in page.attributes("a") if a["href"].endswith(".csv?sort=peak&order=desc")]
    rows = list(csv.DictReader(io.StringIO(site.server.client.get(link).text)))
    assert [row["plan_id"] for row in rows] == [entry["id"] for entry in by_peak]
    assert site.server.client.get(f"{answered}.json?sort=peak&order=desc").json()["plans"] == by_peak
    assert site.server.client.get(f"{answered}.json?sort=").json()["plans"] == plans
    for suffix in (".csv", ".json"):
        assert site.server.client.get(f"{answered}{suffix}?colour=red").status_code == 422
    for wrong in ("sort=colour", "order=up", "from=0", "plan=x", "page=2"):
        assert wrong.partition("=")[0] in site.get(f"{answered}?{wrong}", 422).text


def test_plans_are_exported_as_csv(site: Site, answered: str) -> None:
    answer = site.server.search(answered.rpartition("/")[2])
    response = site.server.client.get(f"{answered}.csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["plan_id"] for row in rows] == [entry["id"] for entry in answer["plans"]]
    for row, entry in zip(rows, answer["plans"], strict=True):
        assert float(row["step_time_s"]) == entry["prediction"]["step_time_s"]
        assert row["layers_per_stage"] == " ".join(str(count) for count in entry["plan"]["layers_per_stage"])
        terms = sum(float(value) for name, value in row.items() if name.startswith("time.") and value)
        assert terms == pytest.approx(entry["prediction"]["step_time_s"])


def test_unusual_options_have_a_column_where_a_plan_has_some(site: Site, answered: str) -> None:
    usual = site.get(answered)
    request = small_request(pins=["offload=optimizer"])
    offloaded = site.get(f"/searches/{site.store_answer(request, small_answer(request))}")
    told = "Options of the plan that are not the usual ones."
    assert told in offloaded.text
    assert "offload optimizer" in cells(offloaded)
    assert len(cells(offloaded)) == len(cells(usual)) + 1
    assert told not in usual.text


def test_what_is_done_is_in_the_list(site: Site, answered: str) -> None:
    page = site.get("/searches?state=done&model=")
    assert page.attributes("a", href=answered)
    assert "proven best" in page.text
    assert page.attributes("a", href="/searches.json?state=done")


def test_json_twins_are_the_api(site: Site, answered: str) -> None:
    client = site.server.client
    for path, own in ((answered, f"/v1{answered}"), ("/searches", "/v1/searches")):
        expected = client.get(own)
        for found in (client.get(f"{path}.json"), client.get(path, headers={"Accept": "application/json"})):
            assert found.json() == expected.json()
            assert found.headers["etag"] == expected.headers["etag"]
            assert found.headers["vary"] == "Accept"
    missing = client.get(f"/searches/{'0' * 32}.json", headers=BROWSER)
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


def test_a_name_is_text_whatever_it_says(site: Site) -> None:
    name = "<script>alert('x')</script>"
    model = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    model |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "_name_or_path": name}
    model |= {"tie_word_embeddings": True}
    question = {"model": model, "cluster": {"name": name, "extends": "dgx-h100"}, "devices": 8}
    asked = site.server.ask(question | {"global_batch_size": 64, "seq_len": 4096, "top": 1}, wait=60)
    assert asked.status_code == 200, asked.text
    for path in ("/searches", f"/searches/{asked.json()['id']}", f"/searches?cluster={name}"):
        page = site.get(path)
        assert name in page.text
        assert "<script>alert" not in page.source


def test_the_list_is_filtered_and_empty_fields_are_no_filter(site: Site, answered: str) -> None:
    assert site.get("/searches?model=llama-3.2-1b&cluster=&state=done&status=").attributes("a", href=answered)
    assert site.get("/searches?model=LLAMA-3.2&cluster=h100").attributes("a", href=answered)
    assert site.server.client.get("/searches.json?model=LLAMA-3.2&cluster=h100").json()["items"]
    assert site.server.client.get("/v1/searches?model=LLAMA-3.2").json()["items"] == []
    recent = site.get("/searches?since=PT2H")
    assert recent.attributes("a", href=answered)
    assert [option for option in recent.attributes("option", value="PT2H") if "selected" in option]
    other = site.get("/searches?model=gpt-oss-20b&cluster=&state=&status=")
    assert "No search is like that." in other.text
    assert other.attributes("input", name="model", value="gpt-oss-20b")


def test_what_is_least_per_sequence_is_said_so(site: Site) -> None:
    request = small_request(batch_tolerance=0.05, seed=5)
    batches = {"asked": 64, "tolerance": 0.05, "searched": [64, 66], "per": "sequence"}
    path = f"/searches/{site.store_answer(request, small_answer(request, best=0.0123, batches=batches))}"
    for page in (site.get(path), site.get("/searches?limit=1")):
        assert "0.01230 s per sequence" in page.text
    assert "64, 66 sequences were searched, as 64 may change by 5 %" in site.get(path).text


def test_the_list_is_read_in_pages(site: Site) -> None:
    request = small_request()
    answer = small_answer(request)
    stored = {site.store_answer(request, answer) for _ in range(5)}
    path, seen, pages = "/searches?limit=2&state=done", [], 0
    while path:
        page = site.get(path)
        seen += re.findall(r'href="/searches/([0-9a-f]{32})"', page.source)
        further = page.attributes("a", rel="next")
        path = further[0]["href"] if further else ""
        pages += 1
        assert bool(page.attributes("nav", **{"aria-label": "Pages of the list"})) == (pages > 1 or bool(path))
    assert len(seen) == len(set(seen))
    assert stored <= set(seen)
    assert pages == -(-len(seen) // 2)


@pytest.mark.parametrize("query", ["limit=0", "cursor=nonsense", "state=lost", "colour=red", "limit=1&limit=2"])
def test_an_unusable_query_is_a_page_for_browsers_and_a_problem_for_programs(site: Site, query: str) -> None:
    assert query.partition("=")[0] in site.get(f"/searches?{query}", status=422).text
    response = site.server.client.get(f"/searches?{query}")
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", [f"/searches/{'0' * 32}", "/searches/none", "/searches/%00", "/nothing/here"])
def test_what_is_not_there_is_a_page_for_browsers_and_a_problem_for_programs(site: Site, path: str) -> None:
    page = site.get(path, status=404)
    assert page.attributes("a", href="/searches")
    response = site.server.client.get(path)
    assert response.status_code == 404
    assert response.json()["type"] == "not-found"
    assert site.server.client.head(path, headers=BROWSER).status_code == 404


def test_the_api_keeps_its_problems_whoever_asks(site: Site) -> None:
    response = site.server.client.get(f"/v1/searches/{'0' * 32}", headers=BROWSER)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_running_search_looks_again_and_can_be_cancelled(site: Site) -> None:
    identifier = site.store_search(small_request())
    page = site.get(f"/searches/{identifier}")
    assert "Searching" in page.text
    assert page.attributes("meta", **{"http-equiv": "refresh"})
    assert page.with_id("live")["data-events"] == f"/v1/searches/{identifier}/events"
    (form,) = page.attributes("form", method="post")
    response = site.server.client.post(form["action"], headers=BROWSER)
    assert response.status_code == 303
    assert response.headers["location"] == f"/searches/{identifier}"
    told = site.get(f"/searches/{identifier}")
    assert "It was told to stop." in told.text
    assert told.attributes("form", method="post") == []
    now = datetime.now(UTC)
    with site.store.writing() as repos:
        assert repos.searches.mark_cancelled(identifier, "another", 1, now)
    over = site.get(f"/searches/{identifier}")
    assert "Cancelled" in over.text
    assert over.attributes("meta", **{"http-equiv": "refresh"}) == []


def test_a_failed_search_says_why(site: Site) -> None:
    identifier = site.store_search(small_request())
    with site.store.writing() as repos:
        problem = {"type": "deadline", "title": "Late", "detail": "it ran <b>far</b> beyond"}
        assert repos.searches.fail(identifier, "another", 1, problem, datetime.now(UTC))
    page = site.get(f"/searches/{identifier}")
    assert "The search failed it ran <b>far</b> beyond" in page.text


def test_nothing_fits_with_the_rules_and_their_numbers(site: Site) -> None:
    # An object whose name is in the catalog too: what is asked with a change is about the object.
    model = load_model("llama-3.1-405b").model_copy(update={"num_layers": 120})
    request = small_request(model=model, devices=64, global_batch_size=2048, seq_len=8192)
    answer = small_answer(request)
    path = f"/searches/{site.store_answer(request, answer)}"
    page = site.get(path)
    assert "Nothing fits" in page.text
    # The form and Scaling would ask about the catalog's.
    assert "The model 'llama-3.1-405b' of the catalog is not the one that was asked about" in page.text
    for part in answer["infeasibility"]["conflict"]:
        told = (part["rule"], f"{part['meshes']:,}", meaning_of(part["rule"]), part["reason"])
        assert " ".join(filter(None, told)) in page.text
    assert answer["infeasibility"]["relaxations"]
    for part in answer["infeasibility"]["relaxations"]:
        assert f"{part['change']} {' '.join(part['flags'])}" in page.text
        assert part["cost"] in page.text
    assert page.attributes("table", **{"class": "ranked"}) == []
    for place, part in enumerate(answer["infeasibility"]["relaxations"], start=1):
        assert page.attributes("form", action=f"{path}/relaxations/{place}")
        asked = site.server.client.post(f"{path}/relaxations/{place}", headers=BROWSER)
        assert asked.status_code == 303, asked.text
        changed = site.server.client.post(f"{asked.headers['location']}/cancel", headers=BROWSER)
        search = site.server.search(asked.headers["location"].rpartition("/")[2])
        said = search["question"] | search["scenario"]
        assert {name: said[name] for name in part["fields"] if name in said} == {
            name: value for name, value in part["fields"].items() if name in said
        }
        with site.store.reading() as repos:
            scenario = repos.scenarios.get(search["scenario"]["id"])
        assert scenario is not None
        assert scenario.model.spec["num_layers"] == 120
        assert said["seq_len"] == part["fields"].get("seq_len", request.scenario.workload.seq_len)
        assert changed.status_code == 303
    assert site.server.client.post(f"{path}/relaxations/99", headers=BROWSER).status_code == 404


def test_an_answer_that_was_cut_says_how_far_it_may_be_from_the_best(site: Site) -> None:
    request = small_request()
    answer = small_answer(request, status="feasible", gap=0.0301, proven_top_k=False)
    page = site.get(f"/searches/{site.store_answer(request, answer)}")
    assert "Cut by the deadline: at most 3.1 % from the best" in page.text
    nothing = small_answer(request, status="unknown", plans=[], best=None, bound=None, gap=None, proven_top_k=False)
    assert "No plan was found before the deadline" in site.get(f"/searches/{site.store_answer(request, nothing)}").text


def test_the_api_is_described_as_its_document_has_it(site: Site) -> None:
    document = site.server.client.get("/openapi.json").json()
    page = site.get("/docs")
    assert page.attributes("a", href="/openapi.json")
    assert site.first.attributes("a", href="/docs")
    listed = re.findall(
        r'<td><code>(\w+)</code></td>\s*<th scope="row"><code>(.*?)</code></th>\s*'
        r"<td>(.*?)<br>.*?</td>\s*<td>(.*?)</td>",
        page.source,
        re.DOTALL,
    )
    expected = {
        (method.upper(), path, operation["summary"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert {(method, path, summary) for method, path, summary, _ in listed} == expected
    assert len(listed) == len(expected)
    scopes = {(method, path): scope for method, path, _, scope in listed}
    assert scopes["POST", "/v1/searches"] == "write"
    assert scopes["GET", "/v1/searches/{search_id}/events"] == "read"
    assert scopes["GET", "/healthz"] == "no key"
    for tag in document["tags"]:
        assert tag["description"].replace("`", "") in page.text


def test_warnings_are_shown(site: Site) -> None:
    request = small_request()
    page = site.get(f"/searches/{site.store_answer(request, small_answer(request, warnings=['mind <the> gap']))}")
    assert "Warning: mind <the> gap" in page.text


def test_an_earlier_answer_under_other_code_is_named(site: Site) -> None:
    request, problem = small_request(top=4), "f" * 32
    answer = small_answer(request)
    earlier = site.store_answer(request, answer, problem_key=problem, cost_model_version="0.0.9+0ldc0de5")
    page = site.get(f"/searches/{site.store_answer(request, answer, problem_key=problem)}")
    assert "Earlier answers to this question" in page.text
    assert page.attributes("a", href=f"/searches/{earlier}")
    assert "0.0.9+0ldc0de5" in page.text


def test_files_are_kept_for_ever_under_the_digest_of_their_content(site: Site) -> None:
    client = site.server.client
    addresses = [link["href"] for link in site.first.attributes("link")]
    assert len(addresses) == 2
    for address in addresses:
        response = client.get(address)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        other = re.sub(r"/static/[0-9a-f]+/", "/static/0123456789abcdef/", address)
        assert client.get(other).status_code == 404
    assert client.get("/static/0123456789abcdef/..%2froutes.py").status_code == 404


def test_pages_ask_no_other_origin_and_run_no_script_of_their_own(site: Site, answered: str) -> None:
    running = site.store_search(small_request(devices=16))
    for page in (
        site.first,
        site.get(answered),
        site.get(f"/searches/{running}"),
        site.get("/nothing", status=404),
        site.get("/docs"),
    ):
        for tag, attributes in page.tags:
            for name in ("href", "src", "action", "data-events"):
                assert attributes.get(name, "/").startswith(("/", "#")), (tag, attributes)
                assert not attributes.get(name, "/").startswith("//")
            assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        assert all(script.get("src") or script["type"] == "application/json" for script in page.attributes("script"))
    response = site.server.client.get(answered, headers=BROWSER)
    assert response.headers["content-security-policy"].startswith("default-src 'self'; style-src 'self'")
    assert response.headers["cache-control"] == "private, no-cache"


@pytest.fixture
def locked(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server that asks for API keys, and a key for each scope."""
    keys: dict[str, str] = {}
    with Store.open(sqlite_url) as store, store.writing() as repos:
        for scope in ("read", "write"):
            keys[scope] = new_secret()
            key = ApiKey(
                id=scope * 4,
                name=scope,
                scopes=(scope,),
                created_at=datetime.now(UTC),
                expires_at=None,
                revoked_at=None,
                last_used_at=None,
            )
            repos.api_keys.add(key, digest_of_secret(keys[scope]))
    with serving(sqlite_url, tmp_path_factory.mktemp("locked"), "--require-keys") as server:
        yield server, keys


def test_browsers_are_asked_for_a_key_and_readers_may_not_ask(locked: tuple[Server, dict[str, str]]) -> None:
    server, keys = locked

    def get(path: str, auth: tuple[str, str] | None = None) -> httpx.Response:
        return server.client.get(path, headers=BROWSER, auth=auth)

    refused = get("/searches")
    assert refused.status_code == 401
    assert 'Basic realm="' in refused.headers["www-authenticate"]
    page = Page(source=refused.text)
    assert "planner keys create" in page.text
    assert get(page.attributes("link", rel="stylesheet")[0]["href"]).status_code == 200
    assert get("/searches", ("me", "pk_wrong")).status_code == 401

    read = Page(source=get("/searches", ("me", keys["read"])).text)
    assert "may read only" in read.text
    assert read.attributes("form", method="post") == []
    denied = server.client.post("/searches", data=FORM, headers=BROWSER, auth=("me", keys["read"]))
    assert denied.status_code == 403
    assert "Not allowed" in Page(source=denied.text).text
    asked = server.client.post("/searches", data=FORM, headers=BROWSER, auth=("me", keys["write"]))
    assert asked.status_code == 303
    assert get(asked.headers["location"], ("me", keys["write"])).status_code == 200
