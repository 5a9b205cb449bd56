"""A message that makes fetching begin sooner; the sweep finds every due one without it."""

from apps.common import hints


def fetch(fetch_id: str) -> None:
    hints.send("code.fetch", fetch_id)
