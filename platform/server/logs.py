"""Logging: a readable line per record, or a JSON object with FERMI_LOG=json, each with its request id."""

from typing import Any

from server.env import read_setting

_JSON = read_setting("FERMI_LOG") == "json"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "apps.common.request_id.RequestIdFilter"}},
    "formatters": {
        "lines": {
            "format": "%(asctime)s %(levelname)-7s %(name)s %(message)s %(request_id)s",
            "datefmt": "%H:%M:%S",
        },
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s",
            "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
        },
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "json" if _JSON else "lines",
            "filters": ["request_id"],
        },
    },
    "root": {"handlers": ["console"], "level": read_setting("FERMI_LOG_LEVEL")},
    "loggers": {
        "uvicorn": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},  # one INFO line per message otherwise
        "celery.worker.strategy": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
    },
}
