"""The beat process: `python -m server.beat` sends each message of `server.celery_settings` when it is due.

It knows tasks by their names only: it imports neither Django nor Celery nor any task. Messages that are due together
are sent together, because a wake-up costs more than a message: the two-second messages leave at the same moment, every
fifth of them with the ten-second ones.
"""

import logging.config
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import redis

from apps.common.celery_messages import QUEUE, message
from fermi.runner.processes import refuse_tracers
from server import celery_settings, env, logs
from server.paths import get_data_dir, get_redis_url

ScheduleEntry = Mapping[str, Any]
log = logging.getLogger("server.beat")


def find_next_due(schedule: Mapping[str, ScheduleEntry], passed: float) -> tuple[float, list[ScheduleEntry]]:
    """Return the next moment at which anything is due, in seconds from the start, and the entries due then, the most
    frequent first. Messages that were missed are not sent later."""
    due = {name: (passed // entry["schedule"] + 1) * entry["schedule"] for name, entry in schedule.items()}
    moment = min(due.values())
    entries = [schedule[name] for name, at in due.items() if at == moment]
    return moment, sorted(entries, key=lambda entry: entry["schedule"])


def send_due(broker: redis.Redis, due: Sequence[ScheduleEntry]) -> None:
    """Send the messages to the broker. A failure is logged and not raised: the next messages are sent all the same."""
    messages = [message(entry["task"], expires=entry["options"]["expires"]) for entry in due]
    try:
        broker.lpush(QUEUE, *messages)
    except Exception as error:  # whatever the broker says: the next messages are sent all the same
        log.warning("%s was not sent: %s", ", ".join(entry["task"] for entry in due), error)


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    refuse_tracers()
    env.check_settings()
    logging.config.dictConfig(logs.LOGGING)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: sys.exit())
    broker = redis.from_url(get_redis_url(get_data_dir()), socket_connect_timeout=2, socket_timeout=30)
    began, passed = time.monotonic(), 0.0
    while True:
        passed, due = find_next_due(celery_settings.CELERY_BEAT_SCHEDULE, passed)
        time.sleep(max(0.0, began + passed - time.monotonic()))
        send_due(broker, due)
        passed = max(passed, time.monotonic() - began)


if __name__ == "__main__":
    main()
