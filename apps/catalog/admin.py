"""Datasets and models for operators: to look at."""

from django.contrib import admin
from unfold.decorators import display

from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.common.admin import ReadOnlyAdmin, label, label_app
from apps.common.texts import both

label(
    Dataset,
    ("数据集", "datasets"),
    name=("名称", "name"),
    project=("项目", "project"),
    created_at=("创建时间", "created"),
)
label(
    DatasetVersion,
    ("数据集版本", "dataset versions"),
    dataset=("数据集", "dataset"),
    name=("名称", "name"),
    status=("状态", "status"),
    source=("来源", "source"),
    error=("错误", "error"),
    created_at=("创建时间", "created"),
)
label(Model, ("模型", "models"), name=("名称", "name"), project=("项目", "project"), recipe=("训练方法", "recipe"))


label_app("catalog", ("数据与模型", "data and models"))

STATUS_NAMES: dict[str, str] = {
    VersionStatus.PREPARING: both("准备中", "preparing"),
    VersionStatus.READY: both("可用", "ready"),
    VersionStatus.FAILED: both("失败", "failed"),
}


@admin.register(Dataset)
class DatasetAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "created_at")
    list_filter = ("project",)
    list_select_related = ("project",)
    search_fields = ("name", "id", "description")


@admin.register(DatasetVersion)
class DatasetVersionAdmin(ReadOnlyAdmin):
    list_display = ("name", "dataset", "shown_status", "percent", "source", "created_at")
    list_filter = ("status",)
    list_select_related = ("dataset",)
    search_fields = ("name", "id", "source", "dataset__name")

    @display(
        description=both("状态", "status"),
        ordering="status",
        label={"ready": "success", "preparing": "info", "failed": "danger"},
    )
    def shown_status(self, version: DatasetVersion) -> tuple[str, str]:
        return version.status, STATUS_NAMES[version.status]

    @display(description=both("进度", "progress"), ordering="progress")
    def percent(self, version: DatasetVersion) -> str:
        return f"{version.progress:.0%}"


@admin.register(Model)
class ModelAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "recipe", "parameters")
    list_filter = ("project", "recipe")
    list_select_related = ("project",)
    search_fields = ("name", "id", "description")
