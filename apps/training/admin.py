"""Training tasks in the operators' console, and draining of environments, which has to stop tasks."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import localtime
from unfold.decorators import display

from apps.clusters.admin import EnvironmentAdmin, ZoneAdmin
from apps.clusters.models import AvailabilityZone, DevEnvironment
from apps.common.admin import ReadOnlyAdmin, label_app, label_model
from apps.common.texts import lazy_admin_text, render_text
from apps.training.models import Task
from apps.training.presenters import selectors, task_presenter
from apps.training.reports.admin_overview import STATE_NAMES, query_holder_name
from apps.training.services import actions
from apps.training.services import pause as task_pause
from apps.training.services.actions import drain_environments
from apps.training.services.create import retry_task
from apps.training.states import TaskState

MAX_EVENTS = 100
MAX_FILE_LENGTH = 20_000  # characters; the console shows all of it

label_model(
    Task,
    "TRAINING_TASKS",
    name="NAME",
    project="PROJECT",
    owner="CREATED_BY",
    cluster="CLUSTER",
    framework="FRAMEWORK",
    state="STATE",
    reason="REASON",
    attempt="ATTEMPT",
    world_size="PROCESSES",
    priority="PRIORITY",
    preemptible="PREEMPTIBLE",
    borrowed="BORROWED",
    in_line_at="IN_LINE_SINCE",
    paused_at="PAUSED_AT",
    preempted_at="ASKED_TO_GIVE_WAY_AT",
    created_at="CREATED",
    started_at="STARTED",
    ended_at="ENDED",
    state_since="IN_THIS_STATE_SINCE",
    due_at="LOOKED_AT_NEXT",
    deadline_at="DEADLINE",
    stop_requested_at="STOP_REQUESTED",
)

label_app("training", "TRAINING")
admin.site.index_template = "training/overview.html"
admin.site.index_title = lazy_admin_text("OVERVIEW")


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """Tasks in the operators' console: read-only, with actions to stop, pause, resume and retry them."""

    list_display = ("name", "id", "shown_state", "why", "project", "owner", "framework", "world_size", "created_at")
    list_filter = ("state", "framework", "project", "cluster", "created_at")
    list_select_related = ("project", "owner")
    search_fields = ("name", "id", "owner__username")
    ordering = ("-created_at",)
    actions = ("stop", "pause", "resume", "retry")
    readonly_fields = ("state_name", "why", "console", "attempts", "events", "plan")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("name", "id", "console"),
                    ("state_name", "why"),
                    ("project", "owner", "cluster"),
                    ("framework", "world_size", "attempt"),
                    ("priority", "preemptible", "borrowed"),
                    ("in_line_at", "paused_at", "preempted_at"),
                    ("created_at", "started_at", "ended_at"),
                    ("state_since", "due_at", "deadline_at"),
                    ("stop_requested_at",),
                )
            },
        ),
        (lazy_admin_text("ATTEMPTS_TITLE"), {"fields": ("attempts",)}),
        (lazy_admin_text("EVENTS"), {"fields": ("events",)}),
        (lazy_admin_text("RENDERED_PLAN"), {"fields": ("plan",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Task]:
        return super().get_queryset(request).defer("spec", "request", "summary", "warnings")

    @display(
        description=lazy_admin_text("STATE"),
        ordering="state",
        label={
            "running": "success", "succeeded": "success", "failed": "danger", "queued": "warning",
            "initializing": "info", "starting": "info", "stopping": "warning", "stopped": "info",
        },
    )  # fmt: skip
    def shown_state(self, task: Task) -> tuple[str, Any]:
        return task.state, STATE_NAMES[TaskState(task.state)]

    @display(description=lazy_admin_text("STATE"))
    def state_name(self, task: Task) -> str:
        return STATE_NAMES[TaskState(task.state)]

    @display(description=lazy_admin_text("REASON"))
    def why(self, task: Task) -> str:
        reason = task_presenter.explain_task(vars(task))
        return reason["message"] if reason else "–"

    @display(description=lazy_admin_text("CONSOLE"))
    def console(self, task: Task) -> SafeString:
        return format_html('<a href="/training/{0}">/training/{0}</a>', task.pk)

    @display(description="")
    def attempts(self, task: Task) -> SafeString:
        rows = task.attempts.defer("plan", "seen").order_by("-number")
        return _build_table(
            (
                attempt.number,
                _format_time(attempt.created_at),
                _format_time(attempt.running_at),
                _format_time(attempt.ended_at),
                render_text(attempt.outcome, attempt.outcome_params)[0] if attempt.outcome else "–",
            )
            for attempt in rows
        )

    @display(description="")
    def events(self, task: Task) -> SafeString:
        """Return the newest events as a table."""
        rows = selectors.query_events(task.pk).order_by("-pk")[:MAX_EVENTS]
        return _build_table((_format_time(row["at"]), task_presenter.serialize_event(row)["message"]) for row in rows)

    @display(description="")
    def plan(self, task: Task) -> SafeString:
        found = selectors.get_plan(task, None, None)
        if found is None:
            return mark_safe("–")
        files = [(file["name"], file["content"]) for file in (*found["files"], *found["artifacts"])]
        return format_html_join(
            "",
            '<details class="mb-2"><summary class="cursor-pointer font-mono">{}</summary>'
            '<pre class="overflow-auto max-h-96 p-3 text-xs bg-base-50 dark:bg-base-800">{}</pre></details>',
            ((name, content[:MAX_FILE_LENGTH]) for name, content in files),
        )

    @admin.action(description=lazy_admin_text("STOP"), permissions=["operate"])
    def stop(self, request: HttpRequest, rows: QuerySet[Task]) -> None:
        self.apply(request, rows, lambda user, task: actions.stop_task_of_any_kind(user, task.pk), "ASKED_TO_STOP")

    @admin.action(description=lazy_admin_text("PAUSE"), permissions=["operate"])
    def pause(self, request: HttpRequest, rows: QuerySet[Task]) -> None:
        self.apply(request, rows, lambda user, task: task_pause.pause_task(user, task.pk), "ASKED_TO_PAUSE")

    @admin.action(description=lazy_admin_text("RESUME"), permissions=["operate"])
    def resume(self, request: HttpRequest, rows: QuerySet[Task]) -> None:
        self.apply(request, rows, lambda user, task: task_pause.resume_task(user, task.pk), "RESUMED_TASKS")

    @admin.action(description=lazy_admin_text("RETRY"), permissions=["operate"])
    def retry(self, request: HttpRequest, rows: QuerySet[Task]) -> None:
        self.apply(request, rows, lambda user, task: retry_task(user, task.pk), "RETRIED")


@admin.register(DevEnvironment)
class DrainableEnvironmentAdmin(EnvironmentAdmin):
    """Environments in the operators' console, with the task that holds each and the action to drain them."""

    actions = (*EnvironmentAdmin.actions, "drain")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DevEnvironment]:
        return super().get_queryset(request).annotate(holder_name=query_holder_name())

    @display(description=lazy_admin_text("HELD_BY"))
    def holder(self, environment: DevEnvironment) -> str | SafeString:
        lease = getattr(environment, "lease", None)
        if lease is None:
            return "–"
        address = reverse("admin:training_task_change", args=[lease.holder])
        return format_html('<a href="{}">{}</a>', address, getattr(environment, "holder_name", "") or lease.holder)

    @admin.action(description=lazy_admin_text("DRAIN"), permissions=["operate"])
    def drain(self, request: HttpRequest, rows: QuerySet[DevEnvironment]) -> None:
        self.apply(request, rows, lambda user, each: drain_environments(user, [each]), "DRAINED")


@admin.register(AvailabilityZone)
class DrainableZoneAdmin(ZoneAdmin):
    """Zones in the operators' console, with the action to drain all their environments."""

    actions = (*ZoneAdmin.actions, "drain")

    @admin.action(
        description=lazy_admin_text("DRAIN_ZONE"),
        permissions=["operate"],
    )
    def drain(self, request: HttpRequest, rows: QuerySet[AvailabilityZone]) -> None:
        environments = DevEnvironment.objects.filter(zone__in=rows)
        self.apply(request, environments, lambda user, each: drain_environments(user, [each]), "DRAINED")


def _format_time(at: Any) -> str:
    return f"{localtime(at):%m-%d %H:%M:%S}" if at else "–"


def _build_table(rows: Iterable[tuple[Any, ...]]) -> SafeString:
    """Return the rows as an HTML table with escaped cells."""
    cell = '<td class="pr-4 py-1 align-top">{}</td>'
    body = [(format_html_join("", cell, ((value,) for value in row)),) for row in rows]
    return format_html("<table>{}</table>", format_html_join("", "<tr>{}</tr>", body)) if body else mark_safe("–")
