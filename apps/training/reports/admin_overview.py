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
from apps.clusters.selectors import STILL_HELD, UNHEALTHY
from apps.common import disks
from apps.common.clock import now
from apps.common.texts import said
from apps.training.models import Attempt, Task
from apps.training.presenters import task_presenter as presenters
from apps.training.reports import causes
from apps.training.states import State

ROWS = 20
WEEK = timedelta(days=7)

STATE_NAMES = {
    State.INITIALIZING: said("INITIALIZING"),
    State.QUEUED: said("QUEUED"),
    State.STARTING: said("STARTING"),
    State.RUNNING: said("TRAINING_RUNS"),
    State.STOPPING: said("STOPPING"),
    State.SUCCEEDED: said("SUCCEEDED"),
    State.FAILED: said("FAILED"),
    State.STOPPED: said("STOPPED"),
}

CORDONED = said("AND_CORDONED")

Table = dict[str, Any]


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the admin index's `context` with `sections` added, for users who may see tasks and environments."""
    user = request.user
    context["nothing"] = said("NONE")
    context["overview"] = said("SEE_OVERVIEW")
    if user.has_perms(["training.view_task", "clusters.view_devenvironment"]):
        context["sections"] = [
            (said("TASKS_BY_STATUS"), _states()),
            (said("GPUS_BY_ZONE"), _zones()),
            (said("WAITING_TASKS"), _queue()),
            (said("TROUBLED_ENVIRONMENTS"), _troubled()),
            (said("FAILURES_OF_THE_WEEK"), _failures()),
            *([(said("FULL_DISKS"), full)] if (full := _disks()) else []),
        ]
    return context


def _states() -> Table:
    counts = dict(Task.trainings.order_by().values_list("state").annotate(Count("state")))
    address = reverse("admin:training_task_changelist")
    rows = [[_link(f"{address}?state__exact={state}", STATE_NAMES[state]), counts.get(state, 0)] for state in State]
    return _table([said("STATUS"), said("TASKS")], rows)


def _zones() -> Table:
    gpus = F("environments__gpu_count")
    usable = Q(environments__status=EnvironmentStatus.RUNNING, environments__cordoned=False)
    zones = AvailabilityZone.objects.order_by("name").values_list(
        "name",
        Coalesce(Sum(gpus), 0),
        Coalesce(Sum(gpus, filter=usable), 0),
        Coalesce(Sum(gpus, filter=Q(environments__lease__isnull=False)), 0),
    )
    headers = [said("ZONE"), said("ALL"), said("IN_SERVICE"), said("IN_USE")]
    return _table(headers, [list(row) for row in zones])


def _queue() -> Table:
    waiting = Task.trainings.filter(state__in=[State.INITIALIZING, State.QUEUED])
    headers = [said("TASK"), said("CREATED_BY"), said("WAITING_FOR"), said("REASON")]
    moment = now()
    counts = dict(waiting.order_by().values_list("state").annotate(Count("pk")))
    address = reverse("admin:training_task_changelist")
    lists = [(f"{address}?state__exact={state}", STATE_NAMES[State(state)], counts[state]) for state in sorted(counts)]
    rows = [
        [
            _task(task.pk, task.name),
            task.owner.username,
            str(timedelta(seconds=int((moment - task.state_since).total_seconds()))),
            (presenters.why(vars(task)) or {"message": "–"})["message"],
        ]
        for task in _first(waiting.order_by("-priority", "created_at").select_related("owner"))
    ]
    return _table(headers, rows, lists, sum(counts.values()))


def holder_name() -> Subquery:
    """Return a subquery, for rows of environments, with the name of the task that holds each."""
    return Subquery(Task.objects.filter(pk=OuterRef("lease__holder")).values("name")[:1])


def _troubled() -> Table:
    """Return the table of unhealthy environments, those taken out of service (a drained one stays so until an operator
    takes it back), and those that a task holds although nothing should run there."""
    troubled = DevEnvironment.objects.filter(UNHEALTHY | Q(cordoned=True) | STILL_HELD)
    counts = troubled.aggregate(
        all=Count("pk"), unhealthy=Count("pk", filter=UNHEALTHY), cordoned=Count("pk", filter=Q(cordoned=True))
    )
    address = reverse("admin:clusters_devenvironment_changelist")
    lists = [
        (f"{address}?status__exact=unhealthy", STATUS_NAMES[EnvironmentStatus.UNHEALTHY], counts["unhealthy"]),
        (f"{address}?cordoned__exact=1", said("CORDONED"), counts["cordoned"]),
    ]
    headers = [said("ENVIRONMENT_SHORT"), said("ZONE"), said("STATUS"), said("HELD_BY")]
    worst_first = Case(When(UNHEALTHY, then=0), default=1)
    rows = [
        [
            _link(reverse("admin:clusters_devenvironment_change", args=[each.pk]), each.name),
            each.zone.name,
            format_html("{}{}", STATUS_NAMES[each.status], CORDONED if each.cordoned else ""),
            _task(each.lease.holder, each.holder_name or each.lease.holder) if hasattr(each, "lease") else "–",
        ]
        for each in troubled.annotate(holder_name=holder_name())
        .select_related("zone", "lease")
        .order_by(worst_first, "name")[:ROWS]
    ]
    return _table(headers, rows, [each for each in lists if each[2]], counts["all"])


def _failures() -> Table:
    """Return the table of failed attempts, and of failed tasks, by cause."""
    found = causes.failures(Attempt.objects.all(), Task.trainings.all(), now() - WEEK)
    rows = [
        [_task(one["taskId"], one["message"] or one["code"]), one["attempts"], one["tasks"]] for one in found["causes"]
    ]
    return _table([said("REASON"), said("ATTEMPTS"), said("TASKS")], rows, total=len(rows) + found["causesLeftOut"])


def _disks() -> Table | None:
    """Return the table of the data directory's disk; None unless it is nearly full."""
    full = disks.nearly_full(settings.DATA_DIR)
    if not full:
        return None
    headers = [said("PATH"), said("DISK_USED"), said("FREE")]
    return _table(headers, [[full["path"], f"{full['percent']} %", f"{full['free'] >> 20} MiB"]])


def _first(tasks: QuerySet[Task]) -> Iterable[Task]:
    return tasks.defer("spec", "request", "summary", "warnings")[:ROWS]


def _table(
    headers: list[Any], rows: list[list[Any]], lists: Sequence[tuple[str, Any, int]] = (), total: int = 0
) -> Table:
    """Return a table for the template. `lists`: links to all rows, as (address, name, count); `total`: how many there
    are, of which `rows` are the first."""
    return {
        "headers": headers,
        "rows": rows,
        "lists": [format_html("{} {}", _link(address, name), count) for address, name, count in lists],
        "cut": said("SHOWN_OF_ALL", shown=len(rows), all=total) if total > len(rows) else "",
    }


def _task(key: str, name: str) -> SafeString:
    return _link(reverse("admin:training_task_change", args=[key]), name)


def _link(address: str, name: Any) -> SafeString:
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', address, name)
