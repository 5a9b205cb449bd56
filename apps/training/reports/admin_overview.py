"""The first page of the operators' console: what is going on, and what needs an operator. The number of queries is
constant."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, Sum, When
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.clusters.admin import STATUS_NAMES
from apps.clusters.models import AvailabilityZone, DevEnvironment, EnvironmentStatus
from apps.clusters.selectors import IS_STOPPED_BUT_HELD, IS_UNHEALTHY
from apps.common import disks
from apps.common.clock import now
from apps.common.texts import lazy_admin_text
from apps.training.models import Attempt, Task
from apps.training.presenters import task_presenter
from apps.training.reports import causes
from apps.training.states import TaskState

MAX_ROWS = 20
WEEK = timedelta(days=7)

STATE_NAMES = {
    TaskState.INITIALIZING: lazy_admin_text("INITIALIZING"),
    TaskState.QUEUED: lazy_admin_text("QUEUED"),
    TaskState.STARTING: lazy_admin_text("STARTING"),
    TaskState.RUNNING: lazy_admin_text("TRAINING_RUNS"),
    TaskState.STOPPING: lazy_admin_text("STOPPING"),
    TaskState.SUCCEEDED: lazy_admin_text("SUCCEEDED"),
    TaskState.FAILED: lazy_admin_text("FAILED"),
    TaskState.STOPPED: lazy_admin_text("STOPPED"),
}

CORDONED = lazy_admin_text("AND_CORDONED")

Table = dict[str, Any]


def build_overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the admin index's `context` with `sections` added, for users who may see tasks and environments."""
    user = request.user
    context["nothing"] = lazy_admin_text("NONE")
    context["overview"] = lazy_admin_text("SEE_OVERVIEW")
    if user.has_perms(["training.view_task", "clusters.view_devenvironment"]):
        context["sections"] = [
            (lazy_admin_text("TASKS_BY_STATUS"), _build_state_table()),
            (lazy_admin_text("GPUS_BY_ZONE"), _build_zone_table()),
            (lazy_admin_text("WAITING_TASKS"), _build_queue_table()),
            (lazy_admin_text("TROUBLED_ENVIRONMENTS"), _build_trouble_table()),
            (lazy_admin_text("FAILURES_OF_THE_WEEK"), _build_failure_table()),
            *([(lazy_admin_text("FULL_DISKS"), full)] if (full := _build_disk_table()) else []),
        ]
    return context


def _build_state_table() -> Table:
    counts = dict(Task.trainings.order_by().values_list("state").annotate(Count("state")))
    address = reverse("admin:training_task_changelist")
    rows = [[_link(f"{address}?state__exact={state}", STATE_NAMES[state]), counts.get(state, 0)] for state in TaskState]
    return _build_table([lazy_admin_text("STATUS"), lazy_admin_text("TASKS")], rows)


def _build_zone_table() -> Table:
    gpus = F("environments__gpu_count")
    usable = Q(environments__status=EnvironmentStatus.RUNNING, environments__cordoned=False)
    zones = AvailabilityZone.objects.order_by("name").values_list(
        "name",
        Coalesce(Sum(gpus), 0),
        Coalesce(Sum(gpus, filter=usable), 0),
        Coalesce(Sum(gpus, filter=Q(environments__lease__isnull=False)), 0),
    )
    headers = [
        lazy_admin_text("ZONE"),
        lazy_admin_text("ALL"),
        lazy_admin_text("IN_SERVICE"),
        lazy_admin_text("IN_USE"),
    ]
    return _build_table(headers, [list(row) for row in zones])


def _build_queue_table() -> Table:
    waiting = Task.trainings.filter(state__in=[TaskState.INITIALIZING, TaskState.QUEUED])
    headers = [
        lazy_admin_text("TASK"),
        lazy_admin_text("CREATED_BY"),
        lazy_admin_text("WAITING_FOR"),
        lazy_admin_text("REASON"),
    ]
    moment = now()
    counts = dict(waiting.order_by().values_list("state").annotate(Count("pk")))
    address = reverse("admin:training_task_changelist")
    lists = [
        (f"{address}?state__exact={state}", STATE_NAMES[TaskState(state)], counts[state]) for state in sorted(counts)
    ]
    rows = [
        [
            _link_task(task.pk, task.name),
            task.owner.username,
            str(timedelta(seconds=int((moment - task.state_since).total_seconds()))),
            (task_presenter.explain_task(vars(task)) or {"message": "–"})["message"],
        ]
        for task in _limit_rows(waiting.order_by("-priority", "created_at").select_related("owner"))
    ]
    return _build_table(headers, rows, lists, sum(counts.values()))


def query_holder_name() -> Subquery:
    """Return a subquery, for rows of environments, with the name of the task that holds each."""
    return Subquery(Task.objects.filter(pk=OuterRef("lease__holder")).values("name")[:1])


def _build_trouble_table() -> Table:
    """Return the table of unhealthy environments, those taken out of service (a drained one stays so until an operator
    takes it back), and those that a task holds although nothing should run there."""
    troubled = DevEnvironment.objects.filter(IS_UNHEALTHY | Q(cordoned=True) | IS_STOPPED_BUT_HELD)
    counts = troubled.aggregate(
        all=Count("pk"), unhealthy=Count("pk", filter=IS_UNHEALTHY), cordoned=Count("pk", filter=Q(cordoned=True))
    )
    address = reverse("admin:clusters_devenvironment_changelist")
    lists = [
        (f"{address}?status__exact=unhealthy", STATUS_NAMES[EnvironmentStatus.UNHEALTHY], counts["unhealthy"]),
        (f"{address}?cordoned__exact=1", lazy_admin_text("CORDONED"), counts["cordoned"]),
    ]
    headers = [
        lazy_admin_text("ENVIRONMENT_SHORT"),
        lazy_admin_text("ZONE"),
        lazy_admin_text("STATUS"),
        lazy_admin_text("HELD_BY"),
    ]
    worst_first = Case(When(IS_UNHEALTHY, then=0), default=1)
    rows = [
        [
            _link(reverse("admin:clusters_devenvironment_change", args=[each.pk]), each.name),
            each.zone.name,
            format_html("{}{}", STATUS_NAMES[each.status], CORDONED if each.cordoned else ""),
            _link_task(each.lease.holder, each.holder_name or each.lease.holder) if hasattr(each, "lease") else "–",
        ]
        for each in troubled.annotate(holder_name=query_holder_name())
        .select_related("zone", "lease")
        .order_by(worst_first, "name")[:MAX_ROWS]
    ]
    return _build_table(headers, rows, [each for each in lists if each[2]], counts["all"])


def _build_failure_table() -> Table:
    """Return the table of failed attempts, and of failed tasks, by cause."""
    found = causes.summarize_causes(Attempt.objects.all(), Task.trainings.all(), now() - WEEK)
    rows = [
        [_link_task(one["taskId"], one["message"] or one["code"]), one["attempts"], one["tasks"]]
        for one in found["causes"]
    ]
    return _build_table(
        [lazy_admin_text("REASON"), lazy_admin_text("ATTEMPTS"), lazy_admin_text("TASKS")],
        rows,
        total=len(rows) + found["causesLeftOut"],
    )


def _build_disk_table() -> Table | None:
    """Return the table of the data directory's disk; None unless it is nearly full."""
    full = disks.find_nearly_full(settings.DATA_DIR)
    if not full:
        return None
    headers = [lazy_admin_text("PATH"), lazy_admin_text("DISK_USED"), lazy_admin_text("FREE")]
    return _build_table(headers, [[full["path"], f"{full['percent']} %", f"{full['free'] >> 20} MiB"]])


def _limit_rows(tasks: QuerySet[Task]) -> Iterable[Task]:
    return tasks.defer("spec", "request", "summary", "warnings")[:MAX_ROWS]


def _build_table(
    headers: list[Any], rows: list[list[Any]], lists: Sequence[tuple[str, Any, int]] = (), total: int = 0
) -> Table:
    """Return a table for the template. `lists`: links to all rows, as (address, name, count); `total`: how many there
    are, of which `rows` are the first."""
    return {
        "headers": headers,
        "rows": rows,
        "lists": [format_html("{} {}", _link(address, name), count) for address, name, count in lists],
        "cut": lazy_admin_text("SHOWN_OF_ALL", shown=len(rows), all=total) if total > len(rows) else "",
    }


def _link_task(key: str, name: str) -> SafeString:
    return _link(reverse("admin:training_task_change", args=[key]), name)


def _link(address: str, name: Any) -> SafeString:
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', address, name)
