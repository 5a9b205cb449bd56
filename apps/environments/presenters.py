"""Templates and lifecycles of environments, as the API returns them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.access import Someone
from apps.clusters.models import Lease
from apps.common.clock import now
from apps.common.nested_texts import explained, said
from apps.common.texts import language
from apps.environments import costs, standby
from apps.environments.models import Event, Hosted, Run, Template
from apps.environments.states import State, Wanted, allowed_actions, idling
from apps.environments.validation import OWN_DOORS
from apps.scheduling.pricing import prices


def templates(user: Someone, filters: Mapping[str, Any]) -> QuerySet[Template]:
    rows = access.visible(Template.objects.select_related("zone", "created_by"), user, shared=True)
    if project := filters.get("project"):
        rows = rows.filter(Q(project=project) | Q(project=None))
    if kinds := filters.get("kind"):
        rows = rows.filter(kind__in=kinds)
    if word := filters.get("search"):
        rows = rows.filter(Q(name__icontains=word) | Q(pk__icontains=word) | Q(description__icontains=word))
    return rows


def template(row: Template, uses: bool) -> dict[str, Any]:
    """Return the template. Values of variables are included if `may_use`: the user may create environments from it."""
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "projectId": row.project_id,
        "clusterId": row.cluster_id,
        "zone": {"id": row.zone.pk, "name": row.zone.name} if row.zone else None,
        "kind": row.kind,
        "image": row.image,
        "packages": row.packages,
        "gpuType": row.gpu_type,
        "gpuCount": row.gpu_count,
        "emulated": row.emulated,
        "cpuCores": row.cpu_cores,
        "memoryGb": row.memory_gb,
        "sharedMemoryGb": row.shared_memory_gb,
        "diskGb": row.disk_gb,
        "ports": row.ports,
        "env": row.env if uses else {},
        "secretEnv": row.secret_env if uses else {},
        "startScript": row.start_script,
        "idleStopMinutes": row.idle_stop_minutes,
        "createdBy": row.created_by.username if row.created_by else "",
        "createdAt": row.created_at,
    }


def attach(user: Someone, items: Iterable[dict[str, Any]]) -> None:
    """Add `standby` and `hosted` to each environment, in seven queries at most, however many there are. `hosted` is
    null for environments that the platform does not manage."""
    shown = {item["id"]: item for item in items}
    standby.attach(shown.values())
    for item in shown.values():
        item["hosted"] = None
    rows = list(Hosted.objects.filter(pk__in=shown).select_related("template"))
    if not rows:
        return
    keys = [row.pk for row in rows]
    spent = costs.by_environment(keys)
    held = set(Lease.objects.filter(environment__in=keys).values_list("environment_id", flat=True))
    roles = {project: access.is_member(user, project) for project in {shown[key]["projectId"] for key in keys}}
    for row in rows:
        item = shown[row.pk]
        item["hosted"] = hosted(row, roles[item["projectId"]], spent.get(row.pk, costs.Cost()), row.pk in held)


def hosted(row: Hosted, changes: bool, spent: costs.Cost, held: bool) -> dict[str, Any]:
    """Return the lifecycle of a managed environment."""
    lang, state = language(), State(row.state)
    activity = row.seen.get("activity") or {}
    doing = row.seen.get("doing")
    own = OWN_DOORS.get(row.spec["kind"], "")
    ports = [{"name": one["name"], "port": one["port"]} for one in row.spec.get("ports") or ()]
    return {
        "state": row.state,
        "since": row.state_since,
        "reason": _reason(row.reason, row.reason_params, lang),
        "doing": _doing(doing, lang) if doing else None,
        "wanted": row.wanted,
        "allowedActions": allowed_actions(
            state, Wanted(row.wanted), changes=changes, idles=bool(row.idle_stop_minutes), held=held
        ),
        "templateId": row.template_id,
        "templateName": row.template.name if row.template else None,
        "run": row.run,
        "idleStopMinutes": row.idle_stop_minutes,
        "activeAt": row.active_at,
        "stopsAt": _stops_at(row, held),
        "keepUntil": row.keep_until,
        "taskId": row.task or None,
        "afterwards": row.afterwards or None,
        "doors": [*([{"name": own, "port": None}] if own else []), *ports],
        "kernels": [_kernel(one) for one in activity.get("kernels", ())] if state is State.RUNNING else [],
        "connections": activity.get("connections", 0) if state is State.RUNNING else 0,
        "sharedMemoryGb": row.spec.get("shared_memory_gb", 0),
        "diskGb": row.spec.get("disk_gb", 0),
        "cost": cost(spent),
    }


def _kernel(one: Mapping[str, Any]) -> dict[str, Any]:
    since = one.get("since")
    at = datetime.fromtimestamp(since, UTC) if since else None
    return {"id": one["id"], "name": one["name"], "busy": one["busy"], "since": at}


def _stops_at(row: Hosted, held: bool) -> Any:
    """Return when the environment will stop by itself; None if it will not, or while it is in use."""
    if row.state != State.RUNNING or held or row.afterwards or row.active_at is None:
        return None
    activity = row.seen.get("activity") or {}
    if activity.get("connections") or any(one["busy"] for one in activity.get("kernels", ())):
        return None
    use = idling.Use(now(), row.active_at, False, row.idle_stop_minutes, row.keep_until, row.warned_at)
    return idling.stops_at(use)


def cost(spent: costs.Cost) -> dict[str, Any]:
    amount = None if spent.amount is None else round(spent.amount, 2)
    return {"gpuHours": round(spent.gpu_hours, 3), "amount": amount, "currency": settings.CURRENCY}


def life(key: str) -> dict[str, Any]:
    """Return the events and runs of an environment."""
    lang, known, moment = language(), prices(), now()
    runs = Run.objects.filter(environment=key).defer("rendered")
    return {
        "events": [_event(one, lang) for one in Event.objects.filter(hosted=key)],
        "runs": [
            {
                "number": run.number,
                "createdAt": run.created_at,
                "runningAt": run.running_at,
                "endedAt": run.ended_at,
                "outcome": _reason(run.outcome, run.outcome_params, lang),
                "gpuType": run.gpu_type,
                "gpuCount": run.gpu_count,
                **cost(costs.of(run, known, moment)),
            }
            for run in runs
        ],
    }


def _event(event: Event, lang: str) -> dict[str, Any]:
    message, _ = said(event.code, explained(event.params, lang), lang)
    return {"at": event.at, "code": event.code, "message": message}


def _reason(code: str, params: Mapping[str, Any], lang: str) -> dict[str, Any] | None:
    if not code:
        return None
    message, hint = said(code, explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


def _doing(doing: Mapping[str, Any], lang: str) -> dict[str, Any]:
    message, _ = said(doing["code"], doing["params"], lang)
    return {"code": doing["code"], "message": message}
