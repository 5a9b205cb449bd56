"""Operators' console: limits, reservations and prices, for administrators; each form follows the rules of its service,
and saves through it."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.core.validators import MinValueValidator
from django.db.models import Model
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from apps.clusters.models import AvailabilityZone, DevEnvironment
from apps.common.admin import AdministratorsAdmin, ReadOnlyAdmin, label_app, label_model
from apps.common.errors import ApiError
from apps.common.texts import lazy_admin_text, render_text
from apps.scheduling.models import Limits, Price, Reservation, Usage, UserLimits
from apps.scheduling.presenters import USER_LIMIT_COLUMNS
from apps.scheduling.services import limits, prices, reservations
from fermi.jobs.spec import Problem
from fermi.scheduler.snapshot import PRIORITY_NUMBERS

label_app("scheduling", "SHARING")
label_model(
    Limits,
    "LIMITS",
    project="PROJECT",
    weight="WEIGHT",
    guaranteed_gpus="GUARANTEED_GPUS",
    most_gpus="MOST_GPUS",
    most_tasks="MOST_TASKS",
    gpu_hours="GPU_HOURS",
    longest_run_seconds="LONGEST_RUN",
    user_most_gpus="USER_MOST_GPUS",
    user_most_tasks="USER_MOST_TASKS",
    max_environments="MAX_ENVIRONMENTS",
    max_environment_gpus="MAX_ENVIRONMENT_GPUS",
    user_max_environments="USER_MAX_ENVIRONMENTS",
    user_max_environment_gpus="USER_MAX_ENVIRONMENT_GPUS",
    user_gpu_hours="USER_GPU_HOURS",
    budget="BUDGET",
    at_budget="AT_BUDGET",
    max_file_bytes="MAX_FILE_BYTES",
    max_cache_bytes="MAX_CACHE_BYTES",
    updated_at="CHANGED",
    updated_by="CHANGED_BY",
)
label_model(
    UserLimits,
    "USER_LIMITS",
    project="PROJECT",
    user="USER",
    most_gpus="MOST_GPUS",
    most_tasks="MOST_TASKS",
    max_environments="MAX_ENVIRONMENTS",
    max_environment_gpus="MAX_ENVIRONMENT_GPUS",
    gpu_hours="GPU_HOURS",
)
label_model(
    Reservation,
    "RESERVATIONS",
    project="PROJECT",
    environments="ENVIRONMENTS_SHORT",
    begins_at="BEGINS",
    ends_at="ENDS",
    note="NOTE",
    created_by="CREATED_BY",
)
label_model(Price, "PRICES", gpu_type="GPU_TYPE", zone="ZONE", per_gpu_hour="PER_GPU_HOUR", since="SINCE")
label_model(
    Usage,
    "USAGE",
    task="TASK",
    task_name="NAME",
    kind="KIND",
    project="PROJECT",
    owner="CREATED_BY",
    environment="ENVIRONMENT",
    environment_name="ENVIRONMENT",
    zone="ZONE",
    gpu_type="GPU_TYPE",
    gpus="GPUS",
    since="SINCE",
    until="UNTIL",
    starting="PART_STARTING",
    training="PART_TRAINING",
    saving="PART_SAVING",
    lost="PART_LOST",
    redone="PART_REDONE",
    idle="PART_IDLE",
    hung="PART_HUNG",
    waited="WAITED_BEFORE",
    per_gpu_hour="PER_GPU_HOUR",
)


def _add_errors(form: forms.ModelForm, problems: list[Problem], fields: Mapping[str, str]) -> None:
    """Add each problem to the form field that it is about."""
    for problem in problems:
        name = fields.get(problem.field.partition(".")[0])
        form.add_error(name if name in form.fields else None, " ".join(render_text(problem.code, problem.params)))


class LimitsForm(forms.ModelForm):
    gpu_types = forms.MultipleChoiceField(
        label=lazy_admin_text("GPU_TYPES"), required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )
    zones = forms.MultipleChoiceField(
        label=lazy_admin_text("ZONES"), required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )
    priorities = forms.MultipleChoiceField(
        label=lazy_admin_text("PRIORITIES"),
        help_text=lazy_admin_text("PRIORITIES_HELP"),
        required=False,
        choices=[(name, name) for name in PRIORITY_NUMBERS],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = DevEnvironment.objects.exclude(gpu_type="").values_list("gpu_type", flat=True)
        types: Any = self.fields["gpu_types"]
        types.choices = [(one, one) for one in sorted({*known, *(self.instance.gpu_types or ())})]
        zones: Any = self.fields["zones"]
        zones.choices = list(AvailabilityZone.objects.order_by("name").values_list("pk", "name"))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        _, problems = limits.validate_limits(cleaned, self.instance)
        _add_errors(self, problems, {"guaranteedGpus": "guaranteed_gpus", "gpuTypes": "gpu_types", "zones": "zones"})
        return cleaned


@admin.register(Limits)
class LimitsAdmin(AdministratorsAdmin):
    form = LimitsForm
    list_display = ("project", "weight", "guaranteed_gpus", "most_gpus", "gpu_hours", "budget", "at_budget")
    list_select_related = ("project",)
    search_fields = ("project__name", "project__id")
    autocomplete_fields = ("project",)
    exclude = ("budget_warned",)
    readonly_fields = ("updated_at", "updated_by")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return (*(("project",) if obj else ()), *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: limits are removed by emptying the fields."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        values = {name: value for name, value in form.cleaned_data.items() if name != "project"}
        budget = values["budget"]
        values["budget"] = None if budget is None else float(budget)
        limits.set_limits(request.user, obj.project, values)  # type: ignore[arg-type]


class UserLimitsForm(forms.ModelForm):
    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        project, user = cleaned.get("project"), cleaned.get("user")
        if project and user and not project.memberships.filter(user=user).exists():
            self.add_error("user", lazy_admin_text("NOT_A_MEMBER"))
        return cleaned


@admin.register(UserLimits)
class UserLimitsAdmin(AdministratorsAdmin):
    form = UserLimitsForm
    list_display = ("user", "project", "most_gpus", "most_tasks", "gpu_hours")
    list_filter = ("project",)
    list_select_related = ("user", "project")
    search_fields = ("user__username", "project__name")
    autocomplete_fields = ("project", "user")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return ("project", "user") if obj else ()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in USER_LIMIT_COLUMNS.values()}
        limits.set_user_limits(request.user, obj.project, obj.user.username, values)  # type: ignore[arg-type]
        obj.pk = UserLimits.objects.get(project=obj.project, user=obj.user).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        limits.delete_user_limits(request.user, obj.project, obj.user.username)  # type: ignore[arg-type]


class ReservationForm(forms.ModelForm):
    user: Any = None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            reservations.check_reservation(
                self.user, self.build_reservation(), [one.pk for one in cleaned["environments"]]
            )
        except ApiError as error:
            _add_errors(self, error.problems, {"environmentIds": "environments", "endsAt": "ends_at"})
        return cleaned

    def build_reservation(self) -> Reservation:
        """Return the reservation that the form describes."""
        cleaned = self.cleaned_data
        project = cleaned["project"]
        return Reservation(
            pk=self.instance.pk,
            project_id=project and project.pk,
            begins_at=cleaned["begins_at"],
            ends_at=cleaned["ends_at"],
        )


@admin.register(Reservation)
class ReservationAdmin(AdministratorsAdmin):
    form = ReservationForm
    list_display = ("__str__", "project", "begins_at", "ends_at", "created_by")
    list_filter = ("project", "begins_at")
    list_select_related = ("project", "created_by")
    search_fields = ("note", "id", "project__name")
    autocomplete_fields = ("project", "environments")
    ordering = ("-begins_at",)
    fields = ("project", "environments", "begins_at", "ends_at", "note")

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form = super().get_form(request, *args, **kwargs)
        return type(form.__name__, (form,), {"user": request.user})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        cleaned = form.cleaned_data
        project = cleaned["project"]
        values = {
            "project_id": project and project.pk,
            "environment_ids": [one.pk for one in cleaned["environments"]],
            "begins_at": cleaned["begins_at"],
            "ends_at": cleaned["ends_at"],
            "note": cleaned["note"],
        }
        if change:
            reservations.change_reservation(request.user, Reservation.objects.get(pk=obj.pk), values)  # type: ignore[arg-type]
        else:
            obj.pk = reservations.create_reservation(request.user, **values).pk  # type: ignore[arg-type]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: the service has saved the environments."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        reservations.delete_reservation(request.user, obj)  # type: ignore[arg-type]


@admin.register(Price)
class PriceAdmin(AdministratorsAdmin):
    """Prices. Rows are never changed: another price is another row, an empty one ends it."""

    list_display = ("shown_type", "shown_zone", "per_gpu_hour", "since")
    list_filter = ("zone",)
    list_select_related = ("zone",)
    search_fields = ("gpu_type",)
    ordering = ("-since",)
    fields = ("gpu_type", "zone", "per_gpu_hour")

    @admin.display(description=lazy_admin_text("GPU_TYPE"), ordering="gpu_type")
    def shown_type(self, price: Price) -> str:
        return price.gpu_type or "*"

    @admin.display(description=lazy_admin_text("ZONE"), ordering="zone")
    def shown_zone(self, price: Price) -> str:
        return price.zone.name if price.zone else "*"

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form = super().get_form(request, *args, **kwargs)
        if price := form.base_fields.get("per_gpu_hour"):
            price.required = False
            price.validators = [*price.validators, MinValueValidator(0)]
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        prices.set_price(request.user, obj.gpu_type, obj.zone_id or "", obj.per_gpu_hour)  # type: ignore[arg-type]
        known = Price.objects.filter(gpu_type=obj.gpu_type, zone=obj.zone_id).order_by("since").last()
        obj.pk = known and known.pk


@admin.register(Usage)
class UsageAdmin(ReadOnlyAdmin):
    list_display = (
        "task_name", "project", "owner", "environment_name", "gpus", "since", "until", "training", "per_gpu_hour",
    )  # fmt: skip
    list_filter = ("project", "kind", "gpu_type", "since")
    list_select_related = ("project",)
    search_fields = ("task", "task_name", "owner", "environment_name")
    ordering = ("-since",)
