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
        self.waiting = Gauge(
            "planner_searches_waiting", "Searches that wait for a slot, of any server.", registry=self.registry
        )
        self.running = Gauge("planner_searches_running", "Searches that this server runs.", registry=self.registry)
        self.ended = Counter(
            "planner_searches_ended",
            "Searches that this server ran to their end: optimal, feasible, infeasible, unknown, failed or cancelled.",
            ("outcome",),
            registry=self.registry,
        )
        self.ready = Gauge("planner_ready", "1 while questions can be answered: see /readyz.", registry=self.registry)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
