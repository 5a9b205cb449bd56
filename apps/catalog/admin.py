"""Operators' console: datasets and models, read-only."""

from django.contrib import admin
from unfold.decorators import display

from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.common.admin import ReadOnlyAdmin, label_app, label_model
from apps.common.texts import lazy_admin_text

label_model(
    Dataset,
    "DATASETS",
    name="NAME",
    project="PROJECT",
    created_at="CREATED",
)
label_model(
    DatasetVersion,
    "DATASET_VERSIONS",
    dataset="DATASET",
    name="NAME",
    status="STATUS",
    source="SOURCE",
    error="ERROR",
    created_at="CREATED",
)
label_model(Model, "MODELS", name="NAME", project="PROJECT", recipe="RECIPE")


label_app("catalog", "DATA_AND_MODELS")

STATUS_NAMES: dict[str, str] = {
    VersionStatus.PREPARING: lazy_admin_text("PREPARING"),
    VersionStatus.READY: lazy_admin_text("READY"),
    VersionStatus.FAILED: lazy_admin_text("FAILED"),
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
        description=lazy_admin_text("STATUS"),
        ordering="status",
        label={"ready": "success", "preparing": "info", "failed": "danger"},
    )
    def shown_status(self, version: DatasetVersion) -> tuple[str, str]:
        return version.status, STATUS_NAMES[version.status]

    @display(description=lazy_admin_text("PROGRESS"), ordering="progress")
    def percent(self, version: DatasetVersion) -> str:
        return f"{version.progress:.0%}"


@admin.register(Model)
class ModelAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "recipe", "parameters")
    list_filter = ("project", "recipe")
    list_select_related = ("project",)
    search_fields = ("name", "id", "description")
