"""How long to leave alone what was looked at, so that looking takes no more than a share of the time."""

LONGEST = 10.0
"""Seconds. What took long was not always work: a process that stood still, or waited for a database that was away,
would look away for many times as long when it is back."""


def pause(took: float, share: float, longest: float = LONGEST) -> float:
    """Seconds. What takes more than `share` of `longest` takes more than its share."""
    return min(took / share, longest)
