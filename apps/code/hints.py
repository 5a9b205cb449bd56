"""A message that starts a fetch early. The sweep finds every due fetch without it."""

from apps.common import wakeups


def enqueue_fetch(fetch_id: str) -> None:
    """Wake a worker for this fetch."""
    wakeups.enqueue_task("code.fetch", fetch_id)
