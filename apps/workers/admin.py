"""Workers and groups for operators."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from apps.common.admin import ReadOnlyAdmin, label, label_app
from apps.common.texts import both
from apps.workers import health
from apps.workers.models import Group, JoinToken, Worker
from apps.workers.services import joining, starting

label(
    Worker,
    ("Worker", "workers"),
    project=("项目", "project"),
    node=("节点", "node"),
    number=("编号", "number"),
    group=("分组", "group"),
    environment=("开发环境", "environment"),
    facts=("主机信息", "host"),
    machine=("机器", "machine"),
    generation=("期望状态版本", "generation"),
    desired=("期望状态", "desired state"),
)
label(
    Group,
    ("Worker 分组", "worker groups"),
    name=("名称", "name"),
    project=("项目", "project"),
    master_address=("Master 地址", "master address"),
    master_port=("Master 端口", "master port"),
    backend=("后端", "backend"),
    script=("脚本", "script"),
    task=("任务", "task"),
)
label(
    JoinToken,
    ("加入令牌", "join tokens"),
    name=("名称", "name"),
    project=("项目", "project"),
    owner=("创建者", "owner"),
    last_used_at=("最近使用", "last used"),
)
label_app("workers", ("Worker", "workers"))

STATUS_NAMES: dict[str, str] = {
    "online": both("在线", "online"),
    "suspect": both("可疑", "suspect"),
    "lost": both("丢失", "lost"),
    "never": both("从未上线", "never heard"),
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
        self._judge = health.judge()
        return super().get_queryset(request)

    @display(
        description=both("状态", "status"),
        label={"online": "success", "suspect": "warning", "lost": "danger", "never": "info"},
    )
    def shown_status(self, worker: Worker) -> tuple[str, str]:
        status = self._judge.status(worker.report.at)
        return status, STATUS_NAMES[status]

    @admin.action(description=both("删除", "Remove"), permissions=["operate"])
    def remove(self, request: HttpRequest, rows: QuerySet[Worker]) -> None:
        self.apply(request, rows, lambda user, worker: joining.remove(user, worker.pk), ("已删除", "removed"))


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

    @admin.action(description=both("停止", "Stop"), permissions=["operate"])
    def stop(self, request: HttpRequest, rows: QuerySet[Group]) -> None:
        self.apply(request, rows, lambda user, group: starting.stop(user, group.pk), ("正在停止", "stopping"))


@admin.register(JoinToken)
class JoinTokenAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "owner", "created_at", "last_used_at")
    list_filter = ("project",)
    list_select_related = ("project", "owner")
    search_fields = ("name", "id", "owner__username")
    exclude = ("digest",)
    actions = ("revoke",)

    @admin.action(description=both("撤销", "Revoke"), permissions=["operate"])
    def revoke(self, request: HttpRequest, rows: QuerySet[JoinToken]) -> None:
        self.apply(request, rows, lambda user, token: joining.revoke_join_token(user, token.pk), ("已撤销", "revoked"))
