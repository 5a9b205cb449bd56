"""Check whether there are workers to train on."""

from collections.abc import Mapping
from typing import Any

from fermi.engines.agent.engine import get_store
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError

CONNECTION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "offline": {"type": "boolean"},
        "data": {
            "type": "object",
            "additionalProperties": False,
            "required": ["mountPath"],
            "properties": {"mountPath": {"type": "string", "pattern": "^/"}},
        },
        "bounds": bounds.BOUNDS_SCHEMA,
    },
}
_START = "fermi worker --server ADDRESS --token TOKEN --node NAME --gpus 0,1"


def findings(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return whether workers are connected, and which of them are not online."""
    try:
        workers = get_store().workers()
    except BackendError as error:
        return [CheckResult(CheckLevel.FAIL, error.code, error.params)]
    if not workers:
        return [CheckResult(CheckLevel.FAIL, "WORKERS_NONE", {}, _START)]
    away = sorted(worker for worker, status in workers.items() if status != "online")
    online = CheckResult(CheckLevel.PASS, "WORKERS_ONLINE", {"count": len(workers) - len(away)})
    return [online, *([CheckResult(CheckLevel.WARN, "WORKERS_AWAY", {"workers": ", ".join(away)})] if away else [])]


def standby(image: str) -> str:
    """Return where the training stack stands by: outside of containers the agent has one process for all."""
    return "environment" if image else "engine"
