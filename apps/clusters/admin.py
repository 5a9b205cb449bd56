"""Operators' console: clusters, zones and environments. `apps.training.admin` adds draining, which stops tasks."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget

from apps.accounts import audit
from apps.clusters import services
from apps.clusters.api.serializers import ClusterChangeRequest
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.common.admin import SEARCH_HELP, ReadOnlyAdmin, label_app, label_model, make_json_field, make_validation_error
from apps.common.errors import ApiError
from apps.common.texts import lazy_admin_text, render_text
from fermi.engines.check_results import CheckLevel
from fermi.planning import plugins

LEVELS = {CheckLevel.PASS: messages.SUCCESS, CheckLevel.WARN: messages.WARNING, CheckLevel.FAIL: messages.ERROR}

label_model(
    Cluster,
    "CLUSTERS",
    name="NAME",
    backend="BACKEND",
    connection="CONNECTION",
    created_at="CREATED",
)
label_model(AvailabilityZone, "AVAILABILITY_ZONES", name="NAME")
label_model(
    DevEnvironment,
    "ENVIRONMENTS",
    name="NAME",
    project="PROJECT",
    owner="OWNER",
    cluster="CLUSTER",
    zone="ZONE",
    kind="KIND",
    status="STATUS",
    cordoned="CORDONED",
    gpu_type="GPU_TYPE",
    gpu_count="GPUS",
    emulated="EMULATED",
)


label_app("clusters", "RESOURCES")

STATUS_NAMES: dict[str, str] = {
    EnvironmentStatus.RUNNING: lazy_admin_text("RUNNING"),
    EnvironmentStatus.STOPPED: lazy_admin_text("STOPPED"),
    EnvironmentStatus.UNHEALTHY: lazy_admin_text("UNHEALTHY"),
    EnvironmentStatus.CREATING: lazy_admin_text("CREATING"),
    EnvironmentStatus.STARTING: lazy_admin_text("STARTING"),
    EnvironmentStatus.STOPPING: lazy_admin_text("STOPPING"),
    EnvironmentStatus.FAILED: lazy_admin_text("FAILED"),
    EnvironmentStatus.DELETED: lazy_admin_text("BEING_DELETED"),
}


class ClusterForm(forms.ModelForm):
    class Meta:
        field_classes = {"connection": make_json_field(ClusterChangeRequest, "connection")}

    backend = forms.ChoiceField(
        label=lazy_admin_text("BACKEND"),
        choices=[(name, name) for name in plugins.BACKENDS],
        widget=UnfoldAdminSelectWidget,
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "connection" not in cleaned:
            return cleaned
        old = self.instance
        backend, connection = cleaned.get("backend", old.backend), cleaned["connection"]
        if old.pk and (backend, connection) == (old.backend, old.connection):  # it may be older than a rule
            return cleaned
        try:
            services.check_connection(backend, connection)
        except ApiError as error:
            raise make_validation_error(error) from None
        return cleaned


@admin.register(Cluster)
class ClusterAdmin(ModelAdmin):
    form = ClusterForm
    list_display = ("name", "id", "backend", "created_at")
    search_help_text = SEARCH_HELP
    search_fields = ("name", "id")
    readonly_fields = ("id", "created_at")
    exclude = ("away_since", "away_why")
    actions = ("check_clusters",)

    @admin.action(description=lazy_admin_text("CHECK_CLUSTER"))
    def check_clusters(self, request: HttpRequest, queryset: QuerySet[Cluster]) -> None:
        for cluster in queryset:
            for one in services.check_cluster(request.user, cluster):  # type: ignore[arg-type]
                said = " ".join(filter(None, [f"{cluster}:", *render_text(one.code, one.params), one.remedy]))
                messages.add_message(request, LEVELS[one.level], said)

    def has_delete_permission(self, request: HttpRequest, obj: Cluster | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        verb = "change" if change else "add"
        audit.record_event(request.user, f"cluster.{verb}", obj.pk, name=obj.name, fields=form.changed_data)


class EnvironmentAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "project", "zone", "shown_status", "scheduling", "gpus", "holder")
    list_filter = ("status", "cordoned", "zone", "cluster", "kind", "gpu_type", "project")
    list_select_related = ("project", "zone", "lease")
    search_fields = ("name", "id", "host", "owner__username")
    actions: tuple[str, ...] = ("cordon", "uncordon")

    @display(
        description=lazy_admin_text("STATUS"),
        ordering="status",
        label={"running": "success", "stopped": "info", "unhealthy": "danger", "failed": "danger"},
    )
    def shown_status(self, environment: DevEnvironment) -> tuple[str, str]:
        return environment.status, STATUS_NAMES[environment.status]

    @display(description=lazy_admin_text("SCHEDULING"), ordering="cordoned", label={True: "warning", False: "success"})
    def scheduling(self, environment: DevEnvironment) -> tuple[bool, str]:
        return environment.cordoned, lazy_admin_text("IS_CORDONED") if environment.cordoned else lazy_admin_text("OPEN")

    @display(description="GPU", ordering="gpu_count")
    def gpus(self, environment: DevEnvironment) -> str:
        emulated = f" ({lazy_admin_text('EMULATED')})" if environment.emulated else ""
        return f"{environment.gpu_count}× {environment.gpu_type}{emulated}" if environment.gpu_count else "–"

    @display(description=lazy_admin_text("HELD_BY"))
    def holder(self, environment: DevEnvironment) -> str:
        lease = getattr(environment, "lease", None)
        return lease.holder if lease else "–"

    @admin.action(description=lazy_admin_text("CORDON"), permissions=["operate"])
    def cordon(self, request: HttpRequest, rows: QuerySet[DevEnvironment]) -> None:
        _set_cordoned(self, request, rows, True)

    @admin.action(description=lazy_admin_text("UNCORDON"), permissions=["operate"])
    def uncordon(self, request: HttpRequest, rows: QuerySet[DevEnvironment]) -> None:
        _set_cordoned(self, request, rows, False)


class ZoneAdmin(ReadOnlyAdmin):
    """Zones. An action on a zone is carried out on each of its environments."""

    list_display = ("name", "id", "environment_count", "cordoned_count")
    search_fields = ("name", "id")
    actions: tuple[str, ...] = ("cordon", "uncordon")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AvailabilityZone]:
        counts = {
            "environment_count_": Count("environments"),
            "cordoned_count_": Count("environments", filter=Q(environments__cordoned=True)),
        }
        return super().get_queryset(request).annotate(**counts)

    @display(description=lazy_admin_text("ENVIRONMENTS_SHORT"), ordering="environment_count_")
    def environment_count(self, zone: Any) -> int:
        return int(zone.environment_count_)

    @display(description=lazy_admin_text("CORDONED_COUNT"), ordering="cordoned_count_")
    def cordoned_count(self, zone: Any) -> int:
        return int(zone.cordoned_count_)

    @admin.action(description=lazy_admin_text("CORDON_ZONE"), permissions=["operate"])
    def cordon(self, request: HttpRequest, rows: QuerySet[AvailabilityZone]) -> None:
        _set_cordoned(self, request, _list_zone_environments(rows, True), True)

    @admin.action(description=lazy_admin_text("UNCORDON_ZONE"), permissions=["operate"])
    def uncordon(self, request: HttpRequest, rows: QuerySet[AvailabilityZone]) -> None:
        _set_cordoned(self, request, _list_zone_environments(rows, False), False)


def _list_zone_environments(zones: QuerySet[AvailabilityZone], now: bool) -> QuerySet[DevEnvironment]:
    return DevEnvironment.objects.filter(zone__in=zones, cordoned=not now)


def _set_cordoned(
    console: ReadOnlyAdmin, request: HttpRequest, environments: QuerySet[DevEnvironment], cordoned: bool
) -> None:
    done = "CORDONED" if cordoned else "UNCORDONED"
    changes = {"cordoned": cordoned}
    console.apply(request, environments, lambda user, each: services.change_environment(user, each, changes), done)
