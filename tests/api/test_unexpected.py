"""What nobody expected: a problem like any other, with the reason in the log alone, and a server that goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.api.asking import answered, problem
from tests.e2e.servers import serving


def test_a_row_that_makes_no_sense_is_a_problem_and_not_the_end(tmp_path: Path) -> None:
    file = tmp_path / "planner.db"
    with serving(f"sqlite:///{file}", tmp_path) as server:
        first, second = answered(server.client, top=2)["plans"]
        with closing(sqlite3.connect(file)) as connection, connection:
            broken = "UPDATE plan_documents SET plan = json_object('tp', 'eight') WHERE plan_id = ?"
            connection.execute(broken, [first["id"]])

        response = server.client.get(f"/v1/plans/{first['id']}", headers={"X-Request-Id": "looked-for"})
        found = problem(response, 500, "internal-error")
        assert found["request_id"] == "looked-for"
        assert "eight" not in response.text
        assert response.headers["content-security-policy"]
        assert server.client.get(f"/v1/plans/{second['id']}").status_code == 200
        log = server.log.read_text(encoding="utf-8")
    assert "eight" in log
    assert "looked-for" in log
