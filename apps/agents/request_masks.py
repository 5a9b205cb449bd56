"""What of a proposed request is shown and stored in clear. Only fields that are listed here are; the whole request is
stored encrypted."""

import re
from collections.abc import Mapping
from typing import Any

from fermi.jobs.credentials import MASK, looks_secret, mask_keys

_SHOWN = """
again after afterwards args backend before beginsAt budget checkpoint choices clusterId code command cordoned cost
count cpuCores cron datasetId datasetVersionId description diskGb distributedConfig drill drillMinutes elastic
emulated enabled endsAt entrypoint environment environmentIds exclude fields framework git goal gpuCount gpuHours
gpuType gpuTypes gpusPerNode graceSeconds hangSeconds help high host id idleStopMinutes ids image infiniband interface
interval ip itself keepBytes kind label launchMode leaveOut level low masterNode masterPort max maxNodes maxRestarts
maxRunSeconds maxSteps memoryGb method metric min minNodes minRunSeconds minSteps minutes missed modelId module name
network newEnvironments nodeIds nodes note objective on onBadLoss onCrashLoop onHang overlap packages parallel path
port ports preemptible preflight priority processes projectId pruning pulse python recipe reduction request
requirements resume resumeFrom revision runIn sameZone scale script select shared sharedMemoryGb snapshot
spareEnvironmentIds stack startTrials status step tags target task taskId taskIds taskName template templateId to
totalGpus trials type url useSpares versionName warm when whenInUse worldSize zone zones
"""
SHOWN_FIELDS = frozenset(_SHOWN.split())
"""Names of fields, at any depth, whose values may be shown; keys in their texts are masked nevertheless."""
OPEN_FIELDS = frozenset(("hyperparameters", "labels", "options", "secretEnv", "strategy", "versions"))
"""Objects whose keys are free and whose values may be shown. `secretEnv` has names of secrets."""
MASKED_FIELDS = frozenset(
    ("default", "defaults", "engine", "env", "overrides", "parameters", "secret", "startScript", "value", "values")
)
"""Known fields that may hold secrets, so that their values are masked. Of objects the keys stay."""

_FLAG = re.compile(r"--?[\w.-]*(?:key|secret|token|passw(?:or)?d|credentials?)[\w.-]*", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"({_FLAG.pattern})(=|\s+)(\S+)", re.IGNORECASE)
_ANSWER_FIELDS = frozenset(("id", "name", "status", "taskId", "taskName"))


def mask_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with the values of all fields masked that are not known to be harmless."""
    return {name: _mask_field(name, value) for name, value in body.items()}


def mask_answer(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the API as it may be stored: of its data only ids, names and states, since others may be
    secrets that are shown once."""
    found = {name: value for name, value in envelope.items() if name != "data"}
    data = envelope.get("data")
    if isinstance(data, Mapping):
        found["data"] = {
            name: value for name, value in data.items() if name in _ANSWER_FIELDS and isinstance(value, str)
        }
    return found


def _mask_field(name: str, value: Any) -> Any:
    if name in OPEN_FIELDS:
        return _clean(name, value, known=False)
    if name not in SHOWN_FIELDS:
        return _mask_all(value)
    return _clean(name, value, known=True)


def _clean(name: str, value: Any, *, known: bool) -> Any:
    """Return the value without keys in its texts. `known`: fields of objects inside are looked up."""
    if isinstance(value, Mapping):
        if known:
            return mask_request(value)
        return {key: _clean(key, inner, known=False) for key, inner in value.items()}
    if isinstance(value, list):
        return _clean_list(name, value, known=known)
    if isinstance(value, str):
        if looks_secret("", value):
            return MASK
        return _ASSIGNMENT.sub(rf"\1\2{MASK}", mask_keys(value))
    return value


def _clean_list(name: str, values: list[Any], *, known: bool) -> list[Any]:
    """Return the items without keys; what follows `--token` and the like is masked, too."""
    cleaned, before = [], ""
    for value in values:
        secret = isinstance(value, str) and bool(_FLAG.fullmatch(before)) and not value.startswith("-")
        cleaned.append(MASK if secret else _clean(name, value, known=known))
        before = value if isinstance(value, str) else ""
    return cleaned


def _mask_all(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _mask_all(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mask_all(inner) for inner in value]
    return value if value is None else MASK
