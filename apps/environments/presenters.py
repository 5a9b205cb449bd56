"""Templates and lifecycles of environments, as the API returns them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.access import AnyUser
from apps.clusters.models import Lease
from apps.common.clock import now
from apps.common.texts import get_request_language, render_code, resolve_params, serialize_reason
from apps.environments import costs, standby
from apps.environments.models import Event, Hosted, Run, Template
from apps.environments.states import DesiredState, EnvironmentState, idleness, list_allowed_actions
from apps.environments.validation import SERVICE_NAMES
from apps.scheduling.pricing import read_prices


def list_templates(user: AnyUser, filters: Mapping[str, Any]) -> QuerySet[Template]:
    rows = access.filter_visible(Template.objects.select_related("zone", "created_by"), user, shared=True)
    if project := filters.get("project"):
        rows = rows.filter(Q(project=project) | Q(project=None))
    if kinds := filters.get("kind"):
        rows = rows.filter(kind__in=kinds)
    if word := filters.get("search"):
        rows = rows.filter(Q(name__icontains=word) | Q(pk__icontains=word) | Q(description__icontains=word))
    return rows


def serialize_template(row: Template, may_use: bool) -> dict[str, Any]:
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
        "env": row.env if may_use else {},
        "secretEnv": row.secret_env if may_use else {},
        "startScript": row.start_script,
        "idleStopMinutes": row.idle_stop_minutes,
        "createdBy": row.created_by.username if row.created_by else "",
        "createdAt": row.created_at,
    }


def attach_details(user: AnyUser, items: Iterable[dict[str, Any]]) -> None:
    """Add `standby` and `hosted` to each environment, in seven queries at most, however many there are. `hosted` is
    null for environments that the platform does not manage."""
    shown = {item["id"]: item for item in items}
    standby.attach_standby(shown.values())
    for item in shown.values():
        item["hosted"] = None
    rows = list(Hosted.objects.filter(pk__in=shown).select_related("template"))
    if not rows:
        return
    keys = [row.pk for row in rows]
    spent = costs.compute_costs(keys)
    held = set(Lease.objects.filter(environment__in=keys).values_list("environment_id", flat=True))
    roles = {project: access.is_member(user, project) for project in {shown[key]["projectId"] for key in keys}}
    for row in rows:
        item = shown[row.pk]
        item["hosted"] = serialize_hosted(
            row, roles[item["projectId"]], spent.get(row.pk, costs.RunCost()), row.pk in held
        )


def serialize_hosted(row: Hosted, may_change: bool, run_cost: costs.RunCost, is_held: bool) -> dict[str, Any]:
    """Return the lifecycle of a managed environment."""
    lang, state = get_request_language(), EnvironmentState(row.state)
    activity = row.seen.get("activity") or {}
    doing = row.seen.get("doing")
    own = SERVICE_NAMES.get(row.spec["kind"], "")
    ports = [{"name": one["name"], "port": one["port"]} for one in row.spec.get("ports") or ()]
    return {
        "state": row.state,
        "since": row.state_since,
        "reason": serialize_reason(row.reason, row.reason_params, lang),
        "doing": _serialize_doing(doing, lang) if doing else None,
        "wanted": row.wanted,
        "allowedActions": list_allowed_actions(
            state,
            DesiredState(row.wanted),
            may_change=may_change,
            stops_when_idle=bool(row.idle_stop_minutes),
            is_held=is_held,
        ),
        "templateId": row.template_id,
        "templateName": row.template.name if row.template else None,
        "run": row.run,
        "idleStopMinutes": row.idle_stop_minutes,
        "activeAt": row.active_at,
        "stopsAt": _compute_stop_time(row, is_held),
        "keepUntil": row.keep_until,
        "taskId": row.task or None,
        "afterwards": row.afterwards or None,
        "doors": [*([{"name": own, "port": None}] if own else []), *ports],
        "kernels": [_serialize_kernel(one) for one in activity.get("kernels", ())]
        if state is EnvironmentState.RUNNING
        else [],
        "connections": activity.get("connections", 0) if state is EnvironmentState.RUNNING else 0,
        "sharedMemoryGb": row.spec.get("shared_memory_gb", 0),
        "diskGb": row.spec.get("disk_gb", 0),
        "cost": serialize_cost(run_cost),
    }


def _serialize_kernel(kernel: Mapping[str, Any]) -> dict[str, Any]:
    since = kernel.get("since")
    at = datetime.fromtimestamp(since, UTC) if since else None
    return {"id": kernel["id"], "name": kernel["name"], "busy": kernel["busy"], "since": at}


def _compute_stop_time(row: Hosted, is_held: bool) -> Any:
    """Return when the environment will stop by itself; None if it will not, or while it is in use."""
    if row.state != EnvironmentState.RUNNING or is_held or row.afterwards or row.active_at is None:
        return None
    activity = row.seen.get("activity") or {}
    if activity.get("connections") or any(one["busy"] for one in activity.get("kernels", ())):
        return None
    use = idleness.IdleFacts(now(), row.active_at, False, row.idle_stop_minutes, row.keep_until, row.warned_at)
    return idleness.compute_stop_time(use)


def serialize_cost(spent: costs.RunCost) -> dict[str, Any]:
    amount = None if spent.amount is None else round(spent.amount, 2)
    return {"gpuHours": round(spent.gpu_hours, 3), "amount": amount, "currency": settings.CURRENCY}


def serialize_life(key: str) -> dict[str, Any]:
    """Return the events and runs of an environment."""
    lang, known, moment = get_request_language(), read_prices(), now()
    runs = Run.objects.filter(environment=key).defer("rendered")
    return {
        "events": [_serialize_event(one, lang) for one in Event.objects.filter(hosted=key)],
        "runs": [
            {
                "number": run.number,
                "createdAt": run.created_at,
                "runningAt": run.running_at,
                "endedAt": run.ended_at,
                "outcome": serialize_reason(run.outcome, run.outcome_params, lang),
                "gpuType": run.gpu_type,
                "gpuCount": run.gpu_count,
                **serialize_cost(costs.compute_run_cost(run, known, moment)),
            }
            for run in runs
        ],
    }


def _serialize_event(event: Event, lang: str) -> dict[str, Any]:
    message, _ = render_code(event.code, resolve_params(event.params, lang), lang)
    return {"at": event.at, "code": event.code, "message": message}


def _serialize_doing(doing: Mapping[str, Any], lang: str) -> dict[str, Any]:
    message, _ = render_code(doing["code"], doing["params"], lang)
    return {"code": doing["code"], "message": message}
