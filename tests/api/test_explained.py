"""Questions that ask for an explanation: the API gives it, keeps it, and the page shows it as text."""

from __future__ import annotations

import httpx
import pytest

from tests.api.asking import ask, pointers, question
from tests.api.pages import BROWSER, Page


@pytest.fixture(scope="module")
def asked() -> dict[str, object]:
    return question(explain=True)


def test_an_explained_answer_is_stored_and_given_again(client: httpx.Client, asked: dict[str, object]) -> None:
    response = ask(client, asked)
    found = response.json()
    assert found["question"]["explain"] is True
    explanation = found["explanation"]
    assert [step["number"] for step in explanation["steps"]] == [1, 2, 3, 4, 5, 6]
    assert explanation["procedure_plan"]["plan"]["devices_used"] <= 16
    assert isinstance(explanation["disagreements"], list)
    assert client.get(f"/v1/searches/{found['id']}").json() == found
    assert client.post("/v1/searches", json=asked).json() == found


def test_the_same_question_without_it_is_another_one(client: httpx.Client, asked: dict[str, object]) -> None:
    explained = ask(client, asked).json()
    plain = ask(client, asked | {"explain": False}).json()
    assert plain["id"] != explained["id"]
    assert "explanation" not in plain
    assert plain["question"]["explain"] is False
    assert plain["plans"] == explained["plans"]


def test_explain_is_true_or_false(client: httpx.Client) -> None:
    assert pointers(client.post("/v1/searches", json=question(explain="yes"))) == ["/explain"]


def test_the_page_shows_the_steps(client: httpx.Client, asked: dict[str, object]) -> None:
    found = ask(client, asked).json()
    response = client.get(f"/searches/{found['id']}", headers=BROWSER)
    page = Page(source=response.text)
    for step in found["explanation"]["steps"]:
        assert f"{step['question']} {step['told']}" in page.text
    for part in found["explanation"]["disagreements"]:
        assert part["told"] in page.text
    assert ("These steps lead to the best plan." in page.text) == (not found["explanation"]["disagreements"])


def test_the_page_compares_by_the_objective(client: httpx.Client) -> None:
    asked = question(explain=True, objective="fewest_devices", global_batch_size=16)
    found = ask(client, asked).json()
    explanation = found["explanation"]
    assert explanation["objective"] == "fewest_devices"
    by_hand = explanation["procedure_plan"]["value"]
    assert by_hand + explanation["difference"]["value"] == found["best"] < by_hand
    page = Page(source=client.get(f"/searches/{found['id']}", headers=BROWSER).text)
    assert "the search has another objective" in page.text
    assert f"The best plan: {found['best']:.0f} devices, by hand {by_hand:.0f} devices." in page.text


def test_the_page_of_a_plain_answer_has_no_steps(client: httpx.Client, asked: dict[str, object]) -> None:
    found = ask(client, asked | {"explain": False}).json()
    response = client.get(f"/searches/{found['id']}", headers=BROWSER)
    assert "explained-title" not in response.text
