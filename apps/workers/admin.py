"""Operators' console: workers, groups and join tokens."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from apps.common.admin import ReadOnlyAdmin, label_app, label_model
from apps.common.texts import lazy_admin_text
from apps.workers import health
from apps.workers.models import Group, JoinToken, Worker
from apps.workers.services import registration, start_group

label_model(
    Worker,
    "WORKERS",
    project="PROJECT",
    node="NODE",
    number="NUMBER",
    group="GROUP",
    environment="ENVIRONMENT",
    facts="HOST",
    machine="MACHINE",
    generation="GENERATION",
    desired="DESIRED_STATE",
)
label_model(
    Group,
    "WORKER_GROUPS",
    name="NAME",
    project="PROJECT",
    master_address="MASTER_ADDRESS",
    master_port="MASTER_PORT",
    backend="BACKEND",
    script="SCRIPT",
    task="TASK",
)
label_model(
    JoinToken,
    "JOIN_TOKENS",
    name="NAME",
    project="PROJECT",
    owner="CREATED_BY",
    last_used_at="LAST_USED",
)
label_app("workers", "WORKERS")

STATUS_NAMES: dict[str, str] = {
    "online": lazy_admin_text("ONLINE"),
    "suspect": lazy_admin_text("SUSPECT"),
    "lost": lazy_admin_text("LOST"),
    "never": lazy_admin_text("NEVER_HEARD"),
}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("id", "shown_status", "node", "group", "project", "environment", "generation")
    list_filter = ("project", "group")
    list_select_related = ("project", "group", "environment", "report")
    search_fields = ("id", "group__name", "facts__host")
    exclude = ("digest", "incarnation")
    actions = ("remove",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        self._judge = health.read_worker_health()
        return super().get_queryset(request)

    @display(
        description=lazy_admin_text("STATUS"),
        label={"online": "success", "suspect": "warning", "lost": "danger", "never": "info"},
    )
    def shown_status(self, worker: Worker) -> tuple[str, str]:
        status = self._judge.status(worker.report.at)
        return status, STATUS_NAMES[status]

    @admin.action(description=lazy_admin_text("REMOVE"), permissions=["operate"])
    def remove(self, request: HttpRequest, rows: QuerySet[Worker]) -> None:
        self.apply(request, rows, lambda user, worker: registration.delete_worker(user, worker.pk), "REMOVED")


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "members", "master_address", "script", "task")
    list_filter = ("project",)
    list_select_related = ("project", "task")
    search_fields = ("name", "id", "script")
    actions = ("stop",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        return super().get_queryset(request).annotate(members_=Count("workers"))

    @display(description="Worker", ordering="members_")
    def members(self, group: Any) -> int:
        return int(group.members_)

    @admin.action(description=lazy_admin_text("STOP"), permissions=["operate"])
    def stop(self, request: HttpRequest, rows: QuerySet[Group]) -> None:
        self.apply(request, rows, lambda user, group: start_group.stop_group(user, group.pk), "ASKED_TO_STOP")


@admin.register(JoinToken)
class JoinTokenAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "owner", "created_at", "last_used_at")
    list_filter = ("project",)
    list_select_related = ("project", "owner")
    search_fields = ("name", "id", "owner__username")
    exclude = ("digest",)
    actions = ("revoke",)

    @admin.action(description=lazy_admin_text("REVOKE"), permissions=["operate"])
    def revoke(self, request: HttpRequest, rows: QuerySet[JoinToken]) -> None:
        self.apply(request, rows, lambda user, token: registration.revoke_join_token(user, token.pk), "REVOKED")
