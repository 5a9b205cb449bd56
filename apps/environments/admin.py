"""Operators' console: templates, whose forms follow the rules of their service, and the lifecycles of environments."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from apps.accounts import audit
from apps.common.admin import AdministratorsAdmin, ReadOnlyAdmin, label_app, label_model, make_json_field
from apps.common.texts import render_text
from apps.environments.api.serializers import EnvironmentMadeOf
from apps.environments.models import Hosted, Template
from apps.environments.services import templates

label_app("environments", "RESOURCES")
label_model(
    Template,
    "ENVIRONMENT_TEMPLATES",
    name="NAME",
    project="PROJECT",
    cluster="CLUSTER",
    zone="ZONE",
    kind="KIND",
    gpu_type="GPU_TYPE",
    gpu_count="GPUS",
    emulated="EMULATED",
    created_at="CREATED",
)
label_model(Hosted, "ENVIRONMENT_LIVES", environment="ENVIRONMENT", state="STATUS", run="RUN_NUMBER", task="TASK")


class TemplateForm(forms.ModelForm):
    class Meta:
        field_classes = {
            "packages": make_json_field(EnvironmentMadeOf, "packages", list),
            "ports": make_json_field(EnvironmentMadeOf, "ports", list),
            "env": make_json_field(EnvironmentMadeOf, "env"),
            "secret_env": make_json_field(EnvironmentMadeOf, "secretEnv"),
        }

    def clean(self) -> dict[str, Any]:
        """Return the values, and add the problems that the API would report to the form as a whole."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            known = {field.attname: getattr(self.instance, field.attname) for field in Template._meta.fields}
            asked = Template(**{**known, **{name: cleaned[name] for name in cleaned}})
            for problem in templates.check_template(asked):
                self.add_error(None, f"{problem.field}: {' '.join(render_text(problem.code, problem.params))}")
        return cleaned


@admin.register(Template)
class TemplateAdmin(AdministratorsAdmin):
    form = TemplateForm
    list_display = ("name", "id", "project", "kind", "gpu_type", "gpu_count", "emulated", "created_at")
    list_filter = ("kind", "project", "cluster", "gpu_type")
    list_select_related = ("project",)
    search_fields = ("name", "id", "description")
    exclude = ("id", "created_by")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = request.user
        super().save_model(request, obj, form, change)
        verb = "change" if change else "create"
        told = {"name": obj.name, "fields": form.changed_data}
        audit.record_event(request.user, f"environment-template.{verb}", obj.pk, project=obj.project_id, **told)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        templates.delete_template(request.user, obj)  # type: ignore[arg-type]


@admin.register(Hosted)
class HostedAdmin(ReadOnlyAdmin):
    list_display = ("environment", "state", "wanted", "run", "reason", "state_since", "active_at", "task")
    list_filter = ("state", "wanted")
    list_select_related = ("environment",)
    search_fields = ("environment__name", "environment__id", "task")
