"""Computes how long to wait between polls so that polling takes no more than a share of the time."""

MAX_PAUSE_SECONDS = 10.0
"""Longest pause in seconds. A poll that took long was not always work: a process that was stopped, or waited for a
database, would otherwise pause for many times as long afterwards."""


def compute_pause(duration: float, share: float, max_pause: float = MAX_PAUSE_SECONDS) -> float:
    """Return the seconds to wait after a poll of `duration` seconds. A poll that takes more than `share` of `max_pause`
    takes more than its share."""
    return min(duration / share, max_pause)
