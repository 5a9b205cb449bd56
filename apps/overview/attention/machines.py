"""Alerts: environments, workers and disks."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q

from apps.accounts import access
from apps.clusters.models import EnvironmentStatus
from apps.clusters.selectors import STILL_HELD, UNHEALTHY
from apps.common import disks
from apps.overview import gpu_use
from apps.overview.attention.entries import Kind, Looked, Rows, entry, say
from apps.overview.machines import Here
from apps.workers import health
from apps.workers.models import Worker
from fermi.engines.check_results import Level

GONE_LATELY = timedelta(days=1)

_COLUMNS = ("id", "name", "zone__name", "started_at", "gone_at", "lease__holder")


def _environments(looked: Looked, condition: Q) -> Rows:
    return looked.scope.own_environments().filter(condition).order_by("name", "pk").values(*_COLUMNS)


def _unhealthy(looked: Looked) -> Rows:
    return _environments(looked, UNHEALTHY)


def _still_held(looked: Looked) -> Rows:
    return _environments(looked, STILL_HELD)


def _gone(looked: Looked) -> Rows:
    """Return environments that have disappeared within SHOW_GONE_FOR; later they count as gone for good."""
    return _environments(looked, Q(gone_at__gte=looked.moment - GONE_LATELY, lease__isnull=True))


def _cordoned(looked: Looked) -> Rows:
    return _environments(looked, Q(cordoned=True, status=EnvironmentStatus.RUNNING))


def _shown(code: str) -> Any:
    def shown(row: dict[str, Any]) -> dict[str, Any]:
        said = say(code, environment=row["name"])
        path = f"/environments/{row['id']}"
        return entry("environment", row["id"], row["name"], row["gone_at"], said, path, row["lease__holder"])

    return shown


def _lost(looked: Looked) -> Rows:
    rows = access.visible(Worker.objects.filter(health.judge().having("lost")), looked.scope.user)
    if looked.scope.project:
        rows = rows.filter(project=looked.scope.project)
    return rows.order_by("pk").values("id", "node", "report__at")


def _worker(row: dict[str, Any]) -> dict[str, Any]:
    said = say("ATTENTION_WORKER_LOST", worker=row["id"], node=row["node"])
    return entry("worker", row["id"], row["id"], row["report__at"], said, f"/workers?search={row['id']}")


def _idle(looked: Looked) -> Rows:
    """Return the machines whose GPUs are held and unused, by task."""
    scope = looked.scope
    by_task: defaultdict[str, list[Here]] = defaultdict(list)
    for here in looked.machines():
        if here.holder and here.use.idle and (not scope.mine or here.holder.owner == scope.user.username):
            by_task[here.holder.id].append(here)
    return sorted(by_task.values(), key=lambda some: (-sum(here.use.idle for here in some), some[0].holder))


def _idle_task(some: Sequence[Here]) -> dict[str, Any]:
    holder = some[0].holder
    assert holder is not None
    minutes = int(gpu_use.IDLE_AFTER.total_seconds() / 60)
    gpus = sum(here.use.idle for here in some)
    said = say("ATTENTION_IDLE", task=holder.name, gpus=gpus, nodes=len(some), minutes=minutes)
    return entry("task", holder.id, holder.name, None, said, f"/training/{holder.id}")


def _disks(looked: Looked) -> Rows:
    """Return full disks, the fullest first."""
    names = dict(looked.scope.own_environments().values_list("pk", "name"))
    found = [(names[key], key, disk) for key, disk in gpu_use.full_disks(list(names), disks.NEARLY_FULL)]
    return sorted(found, key=lambda one: (-one[2].percent, one))


def _disk(row: tuple[str, str, gpu_use.Disk]) -> dict[str, Any]:
    name, key, disk = row
    said = say("ATTENTION_DISK", path=disk.path, percent=disk.percent)
    return entry("environment", key, name, None, said, f"/environments/{key}")


def _platforms_disk(looked: Looked) -> Rows:
    found = disks.nearly_full(settings.DATA_DIR)
    return [found] if found else []


def _full(row: dict[str, Any]) -> dict[str, Any]:
    said = say("DISK_NEARLY_FULL", path=row["path"], percent=row["percent"], freeMiB=row["free"] >> 20)
    return entry("platform", "", row["path"], None, said, None)


KINDS = (
    Kind("platform_disk", Level.FAIL, _platforms_disk, _full, operators=True),
    Kind("environment_unhealthy", Level.FAIL, _unhealthy, _shown("ATTENTION_UNHEALTHY")),
    Kind("environment_held", Level.FAIL, _still_held, _shown("ATTENTION_STOPPED_BUT_HELD")),
    Kind("worker_lost", Level.FAIL, _lost, _worker),
    Kind("environment_disk", Level.WARN, _disks, _disk),
    Kind("gpus_idle", Level.WARN, _idle, _idle_task, owned=True),
    Kind("environment_gone", Level.WARN, _gone, _shown("ATTENTION_GONE")),
    Kind("environment_cordoned", Level.PASS, _cordoned, _shown("ATTENTION_CORDONED")),
)
