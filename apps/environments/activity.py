"""What was observed of runs, stored for others: who uses an environment, and what its host reports of it."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from apps.clusters.models import AvailabilityZone, DevEnvironment, Lease
from apps.common.clock import now
from apps.environments import transitions
from apps.environments.models import Hosted, Run
from apps.environments.states import EnvironmentState
from apps.environments.states.deadlines import MIN_BUSY_PERCENT
from apps.environments.states.idleness import IdleFacts
from apps.notices.services.incidents import resolve_incidents
from apps.telemetry import reader, subjects
from fermi.engines.environments import EnvironmentPhase, EnvironmentStatus

FACT_COLUMNS = ("host", "ip", "versions", "network")
"""Columns of the environment that only its host knows; `engine` is merged into what is stored, and `zone` is a row."""
ACTIVE_TOLERANCE = timedelta(seconds=30)
"""How much earlier the last activity may be than what is stored of it, which saves writes."""

MEMORY_STEP_BYTES = 64 << 20
"""Bytes to which memory is rounded; smaller changes are not stored."""


def find_used_environments(keys: Collection[str]) -> tuple[set[str], set[str]]:
    """Return which of the environments a task holds, and whose GPUs are in use now."""
    held = set(Lease.objects.filter(environment__in=keys).values_list("environment_id", flat=True))
    newest = reader.read_newest(subjects.make_environment_subjects(keys))
    busy = {subjects.get_subject_id(subject) for subject, one in newest.items() if _has_busy_gpu(one.values)}
    return held, busy


def _has_busy_gpu(values: Mapping[str, float]) -> bool:
    return any(key.partition(":")[0] == "gpu" and value >= MIN_BUSY_PERCENT for key, value in values.items())


def build_idle_facts(hosted: Hosted, status: EnvironmentStatus | None, is_held: bool, is_busy: bool) -> IdleFacts:
    """Return the facts that idleness is judged by. An environment that cannot be observed now counts as used, and so
    does one that was created for a task that has not ended: the task may wait in the queue, for its code or for memory.
    """
    moment = now()
    going_on = (
        is_held or is_busy or bool(hosted.afterwards) or status is None or status.phase is EnvironmentPhase.UNKNOWN
    )
    signs = [hosted.active_at or hosted.state_since]
    if status is not None:
        going_on = going_on or status.activity.connections > 0 or any(one.busy for one in status.activity.kernels)
        signs += [datetime.fromtimestamp(at, UTC) for at in (status.activity.at,) if at]
    active = moment if going_on else min(max(signs), moment)
    return IdleFacts(moment, active, going_on, hosted.idle_stop_minutes, hosted.keep_until, hosted.warned_at)


def serialize_status(status: EnvironmentStatus) -> dict[str, Any]:
    """Return the part of the status that is stored, for pages about the environment."""
    doing = status.doing.to_json() if status.doing else None
    activity = asdict(status.activity)
    activity.pop("at")
    for holder in activity["holders"]:
        holder |= {
            name: round(holder[name] / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES for name in ("rss_bytes", "gpu_bytes")
        }
    found: dict[str, Any] = orjson.loads(
        orjson.dumps({"phase": status.phase, "doing": doing, "activity": activity}, default=str)
    )
    return found


def has_changed(hosted: Hosted, status: EnvironmentStatus, idle_facts: IdleFacts) -> bool:
    """Return True if anything differs from what is stored."""
    return (
        hosted.seen != serialize_status(status)
        or _is_active_later(hosted, idle_facts)
        or bool(_find_changed_columns(hosted.environment, status))
    )


def store_status(hosted: Hosted, status: EnvironmentStatus, idle_facts: IdleFacts) -> None:
    """Store the status of the run that it belongs to; writes only what changed."""
    changes: dict[str, Any] = {}
    if hosted.seen != (found := serialize_status(status)):
        changes["seen"] = found
    if _is_active_later(hosted, idle_facts):
        changes["active_at"] = idle_facts.active
    if changes and transitions.filter_unchanged(hosted).update(**changes):
        if hosted.warned_at and "active_at" in changes:
            resolve_incidents(hosted.pk, "environment_idle")
        for name, value in changes.items():
            setattr(hosted, name, value)
    environment = hosted.environment
    if facts := _find_changed_columns(environment, status):
        mine = DevEnvironment.objects.filter(pk=hosted.pk, hosted__in=transitions.filter_unchanged(hosted))
        if mine.update(**facts) and (zone := facts.get("zone")):  # which its price depends on
            Run.objects.filter(environment=hosted.pk, number=hosted.run).update(zone=zone.pk)
        for name, value in facts.items():
            setattr(environment, name, value)


def _is_active_later(hosted: Hosted, idle_facts: IdleFacts) -> bool:
    running = EnvironmentState(hosted.state) is EnvironmentState.RUNNING
    return running and (hosted.active_at is None or idle_facts.active - hosted.active_at >= ACTIVE_TOLERANCE)


def _find_changed_columns(environment: DevEnvironment, status: EnvironmentStatus) -> dict[str, Any]:
    """Return the columns that differ from what the host reports now."""
    if status.phase is not EnvironmentPhase.RUNNING:
        return {}
    said = {name: status.facts[name] for name in FACT_COLUMNS if name in status.facts}
    if engine := status.facts.get("engine"):
        said["engine"] = {**environment.engine, **engine}
    if (zone := status.facts.get("zone")) and zone != environment.zone.name:
        said["zone"] = AvailabilityZone.objects.get_or_create(name=zone)[0]
    return {name: value for name, value in said.items() if getattr(environment, name) != value}
