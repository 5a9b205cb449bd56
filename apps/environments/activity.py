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
from apps.environments.states import State
from apps.environments.states.idling import Use
from apps.environments.states.limits import EMPTY_GPU
from apps.notices.services.incidents import over
from apps.telemetry import reader, subjects
from fermi.engines.environments import HostedPhase, HostedSeen

FACTS = ("host", "ip", "versions", "network")
"""Columns of the environment that only its host knows; `engine` is merged into what is stored, and `zone` is a row."""
NEARLY = timedelta(seconds=30)
"""How much earlier the last activity may be than what is stored of it, which saves writes."""

COARSE = 64 << 20
"""Bytes to which memory is rounded; smaller changes are not stored."""


def at_work(keys: Collection[str]) -> tuple[set[str], set[str]]:
    """Return which of the environments a task holds, and whose GPUs are in use now."""
    held = set(Lease.objects.filter(environment__in=keys).values_list("environment_id", flat=True))
    newest = reader.newest(subjects.environments(keys))
    busy = {subjects.key_of(subject) for subject, one in newest.items() if _busy(one.values)}
    return held, busy


def _busy(values: Mapping[str, float]) -> bool:
    return any(key.partition(":")[0] == "gpu" and value >= EMPTY_GPU for key, value in values.items())


def use(hosted: Hosted, seen: HostedSeen | None, held: bool, busy: bool) -> Use:
    """Return the facts that idleness is judged by. An environment that cannot be observed now counts as used, and so
    does one that was created for a task that has not ended: the task may wait in the queue, for its code or for memory.
    """
    moment = now()
    going_on = held or busy or bool(hosted.afterwards) or seen is None or seen.phase is HostedPhase.UNKNOWN
    signs = [hosted.active_at or hosted.state_since]
    if seen is not None:
        going_on = going_on or seen.activity.connections > 0 or any(one.busy for one in seen.activity.kernels)
        signs += [datetime.fromtimestamp(at, UTC) for at in (seen.activity.at,) if at]
    active = moment if going_on else min(max(signs), moment)
    return Use(moment, active, going_on, hosted.idle_stop_minutes, hosted.keep_until, hosted.warned_at)


def shown(seen: HostedSeen) -> dict[str, Any]:
    """Return the part of the status that is stored, for pages about the environment."""
    doing = seen.doing.to_json() if seen.doing else None
    activity = asdict(seen.activity)
    activity.pop("at")
    for holder in activity["holders"]:
        holder |= {name: round(holder[name] / COARSE) * COARSE for name in ("rss_bytes", "gpu_bytes")}
    found: dict[str, Any] = orjson.loads(
        orjson.dumps({"phase": seen.phase, "doing": doing, "activity": activity}, default=str)
    )
    return found


def is_news(hosted: Hosted, seen: HostedSeen, used: Use) -> bool:
    """Return True if anything differs from what is stored."""
    return hosted.seen != shown(seen) or _later(hosted, used) or bool(_facts(hosted.environment, seen))


def remember(hosted: Hosted, seen: HostedSeen, used: Use) -> None:
    """Store the status of the run that it belongs to; writes only what changed."""
    changes: dict[str, Any] = {}
    if hosted.seen != (found := shown(seen)):
        changes["seen"] = found
    if _later(hosted, used):
        changes["active_at"] = used.active
    if changes and transitions.same(hosted).update(**changes):
        if hosted.warned_at and "active_at" in changes:
            over(hosted.pk, "environment_idle")
        for name, value in changes.items():
            setattr(hosted, name, value)
    environment = hosted.environment
    if facts := _facts(environment, seen):
        mine = DevEnvironment.objects.filter(pk=hosted.pk, hosted__in=transitions.same(hosted))
        if mine.update(**facts) and (zone := facts.get("zone")):  # which its price depends on
            Run.objects.filter(environment=hosted.pk, number=hosted.run).update(zone=zone.pk)
        for name, value in facts.items():
            setattr(environment, name, value)


def _later(hosted: Hosted, used: Use) -> bool:
    running = State(hosted.state) is State.RUNNING
    return running and (hosted.active_at is None or used.active - hosted.active_at >= NEARLY)


def _facts(environment: DevEnvironment, seen: HostedSeen) -> dict[str, Any]:
    """Return the columns that differ from what the host reports now."""
    if seen.phase is not HostedPhase.RUNNING:
        return {}
    said = {name: seen.facts[name] for name in FACTS if name in seen.facts}
    if engine := seen.facts.get("engine"):
        said["engine"] = {**environment.engine, **engine}
    if (zone := seen.facts.get("zone")) and zone != environment.zone.name:
        said["zone"] = AvailabilityZone.objects.get_or_create(name=zone)[0]
    return {name: value for name, value in said.items() if getattr(environment, name) != value}
