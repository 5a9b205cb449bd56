"""A message that makes fetching begin sooner; the sweep finds every due one without it."""

from apps.common import wakeups


def fetch(fetch_id: str) -> None:
    wakeups.send("code.fetch", fetch_id)
