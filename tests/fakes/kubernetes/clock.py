"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def stamp(at: datetime | None = None) -> str:
    """A `metav1.Time`: whole seconds."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(at: datetime | None = None) -> str:
    """A `metav1.MicroTime`, as leases and events have it."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
