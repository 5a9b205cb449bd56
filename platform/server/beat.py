"""The beat process: `python -m server.beat` sends each message of `server.jobs` when it is due.

It knows tasks by their names alone: it imports neither Django nor anything that works, and takes a third of the memory
that `celery -A server.celery beat` takes, which sends the same. What is due goes out together, because waking up costs
more than sending: the two-second messages leave at the same moment, every fifth of them with the ten-second ones.
"""

import logging.config
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from celery import Celery

from server import env, jobs, logs

Entry = Mapping[str, Any]
log = logging.getLogger("server.beat")


def app() -> Celery:
    made = Celery("fermi", fixups=[])  # the one for Django would import it
    made.config_from_object(jobs, namespace="CELERY")
    return made


def upcoming(schedule: Mapping[str, Entry], passed: float) -> tuple[float, list[Entry]]:
    """The next moment at which anything is due, in seconds from the start, and what is; the most frequent first. What
    was missed meanwhile is not made up for."""
    due = {name: (passed // entry["schedule"] + 1) * entry["schedule"] for name, entry in schedule.items()}
    moment = min(due.values())
    entries = [schedule[name] for name, at in due.items() if at == moment]
    return moment, sorted(entries, key=lambda entry: entry["schedule"])


def send(celery: Celery, entry: Entry) -> None:
    try:
        celery.send_task(entry["task"], retry=False, **entry["options"])
    except Exception as error:  # whatever the broker says: the next message is sent all the same
        log.warning("%s was not sent: %s", entry["task"], error)


def main() -> None:
    env.check()
    logging.config.dictConfig(logs.LOGGING)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: sys.exit())
    celery, began, passed = app(), time.monotonic(), 0.0
    while True:
        passed, due = upcoming(jobs.CELERY_BEAT_SCHEDULE, passed)
        time.sleep(max(0.0, began + passed - time.monotonic()))
        for entry in due:
            send(celery, entry)
        passed = max(passed, time.monotonic() - began)


if __name__ == "__main__":
    main()
