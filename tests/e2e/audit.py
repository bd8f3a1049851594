"""What has to hold of a database whatever happened to the servers that wrote it."""

from __future__ import annotations

from sqlalchemy import Connection, text

from db.engine import engine_of, for_reading
from db.schema import check
from db.urls import database_url

_ALL_OR_NOTHING = {
    "a plan has no document": """
        SELECT plans.id FROM plans LEFT JOIN plan_documents ON plan_id = plans.id WHERE plan_id IS NULL""",
    "a plan has no prediction": """
        SELECT plans.id FROM plans LEFT JOIN predictions ON plan_id = plans.id WHERE plan_id IS NULL""",
    "a done search has no answer": """
        SELECT id FROM searches WHERE state = 'done' AND (status IS NULL OR details IS NULL OR finished_at IS NULL)""",
    "a done search with a best has no plans": """
        SELECT id FROM searches WHERE state = 'done' AND best IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM search_plans WHERE search_id = id)""",
    "a search that isn't done has plans": """
        SELECT search_id FROM search_plans JOIN searches ON id = search_id WHERE state <> 'done'""",
    "ranks have holes": """
        SELECT search_id FROM search_plans GROUP BY search_id HAVING count(*) <> max(rank) OR min(rank) <> 1""",
    "a finished search has an owner": """
        SELECT id FROM searches WHERE state NOT IN ('running') AND (owner IS NOT NULL OR lease_until IS NOT NULL)""",
    "a running search has no owner": """
        SELECT id FROM searches WHERE state = 'running' AND (owner IS NULL OR lease_until IS NULL)""",
    "the last event isn't the state": """
        SELECT id FROM searches WHERE state NOT IN ('running') AND state <> (
            SELECT kind FROM search_events WHERE search_id = id ORDER BY sequence DESC LIMIT 1)""",
    "a search ended twice": """
        SELECT search_id FROM search_events WHERE kind IN ('done', 'failed', 'cancelled')
        GROUP BY search_id HAVING count(*) > 1""",
    "events have holes": """
        SELECT search_id FROM search_events GROUP BY search_id HAVING count(*) <> max(sequence) - min(sequence) + 1""",
}


def wrong_with(url: str) -> list[str]:
    """What is wrong with a database: its schema, its file, its references, contents against their fingerprints, and
    everything that is written as a whole but is only there in part.
    """
    database = database_url(url)
    engine = engine_of(database)
    try:
        with for_reading(engine).connect() as connection:
            halves = [line for what, query in _ALL_OR_NOTHING.items() for line in _lines(connection, what, query)]
    finally:
        engine.dispose()
    return check(database, contents=True) + halves


def count(url: str, what: str) -> int:
    """``SELECT count(*) FROM`` what follows."""
    engine = engine_of(database_url(url))
    try:
        with for_reading(engine).connect() as connection:
            return int(connection.execute(text(f"SELECT count(*) FROM {what}")).scalar_one())
    finally:
        engine.dispose()


def _lines(connection: Connection, what: str, query: str) -> list[str]:
    return [f"{what}: {row[0]}" for row in connection.execute(text(query))]
