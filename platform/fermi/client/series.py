"""How series of what was measured are asked for."""

from collections.abc import Mapping, Sequence
from typing import Any


def telemetry_params(
    metrics: Sequence[str], begins: str | None, ends: str | None, points: int | None
) -> Mapping[str, Any]:
    return {"metric": metrics, "from": begins, "to": ends, "points": points}
