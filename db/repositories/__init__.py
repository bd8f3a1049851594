"""Repositories: what may be asked of the store and told to it, within one transaction.

They take and give ``db.records``; rows, sessions and SQL stay inside.
"""

from __future__ import annotations

from sqlalchemy import Connection

from db.repositories.api_keys import ApiKeys
from db.repositories.catalog import Clusters, Models
from db.repositories.events import Events
from db.repositories.idempotency import Idempotency
from db.repositories.measurements import Measurements
from db.repositories.plans import Plans
from db.repositories.scenarios import Calibrations, Scenarios
from db.repositories.searches import Searches
from db.repositories.studies import Studies


class Repositories:
    """All of them, on one transaction.

    Attributes:
        connection: for what ``db`` itself does with whole tables.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.models = Models(connection)
        self.clusters = Clusters(connection)
        self.scenarios = Scenarios(connection)
        self.calibrations = Calibrations(connection)
        self.plans = Plans(connection)
        self.searches = Searches(connection)
        self.events = Events(connection)
        self.measurements = Measurements(connection)
        self.studies = Studies(connection)
        self.api_keys = ApiKeys(connection)
        self.idempotency = Idempotency(connection)
