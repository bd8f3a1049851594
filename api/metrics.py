"""Counters for Prometheus; one registry per application, so that two in one process do not mix."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """What a server counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "planner_http_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "planner_http_request_seconds",
            "Seconds until a response was complete, by route.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.questions = Counter(
            "planner_questions",
            "Questions asked: answered from the store, joined to a search on its way, or new.",
            ("outcome",),
            registry=self.registry,
        )
        self.waiting = Gauge("planner_searches_waiting", "Searches that wait for a slot.", registry=self.registry)
        self.ready = Gauge("planner_ready", "1 while the results database can be reached.", registry=self.registry)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
