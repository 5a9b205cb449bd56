"""Alerts: environments, workers and disks."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q

from apps.accounts import access
from apps.clusters.models import EnvironmentStatus
from apps.clusters.selectors import IS_STOPPED_BUT_HELD, IS_UNHEALTHY
from apps.common import disks
from apps.overview import gpu_use
from apps.overview.attention.entries import AlertContext, AlertKind, Rows, build_alert, render_alert_text
from apps.overview.machines import VisibleMachine
from apps.workers import health
from apps.workers.models import Worker
from fermi.engines.check_results import CheckLevel

SHOW_GONE_FOR = timedelta(days=1)

_COLUMNS = ("id", "name", "zone__name", "started_at", "gone_at", "lease__holder")


def _list_environments(context: AlertContext, condition: Q) -> Rows:
    return context.scope.own_environments().filter(condition).order_by("name", "pk").values(*_COLUMNS)


def _list_unhealthy(context: AlertContext) -> Rows:
    return _list_environments(context, IS_UNHEALTHY)


def _list_still_held(context: AlertContext) -> Rows:
    return _list_environments(context, IS_STOPPED_BUT_HELD)


def _list_gone(context: AlertContext) -> Rows:
    """Return environments that have disappeared within SHOW_GONE_FOR; later they count as gone for good."""
    return _list_environments(context, Q(gone_at__gte=context.moment - SHOW_GONE_FOR, lease__isnull=True))


def _list_cordoned(context: AlertContext) -> Rows:
    return _list_environments(context, Q(cordoned=True, status=EnvironmentStatus.RUNNING))


def _make_describer(code: str) -> Any:
    def serialize(row: dict[str, Any]) -> dict[str, Any]:
        said = render_alert_text(code, environment=row["name"])
        path = f"/environments/{row['id']}"
        return build_alert("environment", row["id"], row["name"], row["gone_at"], said, path, row["lease__holder"])

    return serialize


def _list_lost_workers(context: AlertContext) -> Rows:
    rows = access.filter_visible(Worker.objects.filter(health.read_worker_health().having("lost")), context.scope.user)
    if context.scope.project:
        rows = rows.filter(project=context.scope.project)
    return rows.order_by("pk").values("id", "node", "report__at")


def _describe_worker(row: dict[str, Any]) -> dict[str, Any]:
    said = render_alert_text("ATTENTION_WORKER_LOST", worker=row["id"], node=row["node"])
    return build_alert("worker", row["id"], row["id"], row["report__at"], said, f"/workers?search={row['id']}")


def _list_idle(context: AlertContext) -> Rows:
    """Return the machines whose GPUs are held and unused, by task."""
    scope = context.scope
    by_task: defaultdict[str, list[VisibleMachine]] = defaultdict(list)
    for here in context.machines():
        if here.holder and here.use.idle and (not scope.mine or here.holder.owner == scope.user.username):
            by_task[here.holder.id].append(here)
    return sorted(by_task.values(), key=lambda some: (-sum(here.use.idle for here in some), some[0].holder))


def _describe_idle_task(visible: Sequence[VisibleMachine]) -> dict[str, Any]:
    holder = visible[0].holder
    assert holder is not None
    minutes = int(gpu_use.IDLE_AFTER.total_seconds() / 60)
    gpus = sum(here.use.idle for here in visible)
    said = render_alert_text("ATTENTION_IDLE", task=holder.name, gpus=gpus, nodes=len(visible), minutes=minutes)
    return build_alert("task", holder.id, holder.name, None, said, f"/training/{holder.id}")


def _list_full_disks(context: AlertContext) -> Rows:
    """Return full disks, the fullest first."""
    names = dict(context.scope.own_environments().values_list("pk", "name"))
    found = [(names[key], key, disk) for key, disk in gpu_use.list_full_disks(list(names), disks.NEARLY_FULL_SHARE)]
    return sorted(found, key=lambda one: (-one[2].percent, one))


def _describe_disk(row: tuple[str, str, gpu_use.DiskUse]) -> dict[str, Any]:
    name, key, disk = row
    said = render_alert_text("ATTENTION_DISK", path=disk.path, percent=disk.percent)
    return build_alert("environment", key, name, None, said, f"/environments/{key}")


def _list_platform_disk(context: AlertContext) -> Rows:
    found = disks.find_nearly_full(settings.DATA_DIR)
    return [found] if found else []


def _describe_platform_disk(row: dict[str, Any]) -> dict[str, Any]:
    said = render_alert_text("DISK_NEARLY_FULL", path=row["path"], percent=row["percent"], freeMiB=row["free"] >> 20)
    return build_alert("platform", "", row["path"], None, said, None)


ALERT_KINDS = (
    AlertKind("platform_disk", CheckLevel.FAIL, _list_platform_disk, _describe_platform_disk, operators=True),
    AlertKind("environment_unhealthy", CheckLevel.FAIL, _list_unhealthy, _make_describer("ATTENTION_UNHEALTHY")),
    AlertKind("environment_held", CheckLevel.FAIL, _list_still_held, _make_describer("ATTENTION_STOPPED_BUT_HELD")),
    AlertKind("worker_lost", CheckLevel.FAIL, _list_lost_workers, _describe_worker),
    AlertKind("environment_disk", CheckLevel.WARN, _list_full_disks, _describe_disk),
    AlertKind("gpus_idle", CheckLevel.WARN, _list_idle, _describe_idle_task, owned=True),
    AlertKind("environment_gone", CheckLevel.WARN, _list_gone, _make_describer("ATTENTION_GONE")),
    AlertKind("environment_cordoned", CheckLevel.PASS, _list_cordoned, _make_describer("ATTENTION_CORDONED")),
)
