"""The beat process: what is due when, and what it does about a broker that is away."""

import pytest
import redis

from server import beat, celery_settings
from server.celery import app as worker

SCHEDULE = {
    "slow": {"task": "slow", "schedule": 10.0},
    "often": {"task": "often", "schedule": 2.0},
    "five": {"task": "five", "schedule": 5.0},
}


def due(passed: float) -> tuple[float, list[str]]:
    moment, entries = beat.find_next_due(SCHEDULE, passed)
    return moment, [entry["task"] for entry in entries]


def test_messages_due_together_are_sent_most_frequent_first() -> None:
    found, passed = [], 0.0
    while passed < 10:
        passed, names = due(passed)
        found.append((passed, names))
    assert found == [
        (2, ["often"]),
        (4, ["often"]),
        (5, ["five"]),
        (6, ["often"]),
        (8, ["often"]),
        (10, ["often", "five", "slow"]),
    ]


def test_missed_messages_are_not_sent_later() -> None:
    assert due(100.3) == (102, ["often"])


def test_every_scheduled_message_has_a_task() -> None:
    worker.loader.import_default_modules()
    assert [
        entry["task"] for entry in celery_settings.CELERY_BEAT_SCHEDULE.values() if entry["task"] not in worker.tasks
    ] == []


def test_beat_survives_a_missing_broker(caplog: pytest.LogCaptureFixture) -> None:
    away = redis.Redis(unix_socket_path="/nowhere/broker.sock", retry=None)
    beat.send_due(
        away, [celery_settings.CELERY_BEAT_SCHEDULE["training"], celery_settings.CELERY_BEAT_SCHEDULE["workers"]]
    )
    assert "training.sweep, workers.sweep was not sent" in caplog.text
