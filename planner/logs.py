"""Structured logs: one JSON object a line on stderr, with the id of the request that it belongs to."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)


def request_id() -> str | None:
    """The id of the request that this code runs for; None outside of one."""
    return _REQUEST_ID.get()


def enter_request(identifier: str) -> None:
    """From here on, this context is that request's."""
    _REQUEST_ID.set(identifier)


class WithRequestId(logging.Filter):
    """Adds ``request_id`` to records made while a request is handled."""

    def filter(self, record: logging.LogRecord) -> bool:
        identifier = request_id()
        if identifier is not None:
            record.request_id = identifier
        return True


def log_config(level: str = "INFO") -> dict[str, Any]:
    """For ``logging.config.dictConfig`` and uvicorn."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"request": {"()": WithRequestId}},
        "formatters": {
            "json": {
                "()": "pythonjsonlogger.json.JsonFormatter",
                "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
                "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
                "datefmt": "%Y-%m-%dT%H:%M:%S%z",
            }
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "json",
                "filters": ["request"],
            }
        },
        "loggers": {
            "planner": {"handlers": ["stderr"], "level": level, "propagate": False},
            # Requests are logged by our own middleware, with more in each line.
            "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
    }
