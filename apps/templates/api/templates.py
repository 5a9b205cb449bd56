"""Endpoints of saved templates: requests for tasks with parameters."""

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from apps.accounts import access
from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField
from apps.templates import placeholders
from apps.templates.models import SavedTemplate
from apps.templates.services import templates
from apps.training.api.preview import serialize_preview
from apps.training.public import serialize_problem

MAX_KEY_LENGTH = 200
MAX_NUMBER = placeholders.MAX_NUMBER
TYPES = [(one, one) for one in placeholders.TYPES]


class TemplateParameterRequest(serializers.Serializer):
    """A parameter of a template."""

    name = serializers.CharField(max_length=40, help_text="letters, digits and underscores: {{name}} in the request")
    type = serializers.ChoiceField(TYPES)
    label = serializers.CharField(  # type: ignore[assignment]
        max_length=100, allow_blank=True, required=False, help_text="what the form shows; by default the name"
    )
    help = serializers.CharField(
        max_length=500, allow_blank=True, required=False, help_text="in the words of its users"
    )
    default = serializers.JSONField(
        allow_null=True, required=False, help_text="of its type; without one a value has to be given"
    )
    low = serializers.FloatField(
        min_value=-MAX_NUMBER, max_value=MAX_NUMBER, allow_null=True, required=False, help_text="the smallest number"
    )
    high = serializers.FloatField(
        min_value=-MAX_NUMBER, max_value=MAX_NUMBER, allow_null=True, required=False, help_text="the largest number"
    )
    choices = serializers.ListField(
        child=serializers.CharField(max_length=200), max_length=placeholders.MAX_CHOICES, required=False
    )
    path = serializers.CharField(
        max_length=300,
        required=False,
        help_text="where in the request its placeholder is written: entrypoint.args.1; what was there is the default",
    )


class SavedTemplateChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    request = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        required=False,
        help_text="the body of a create, with {{name}} in texts or as whole values",
    )
    parameters = serializers.ListField(
        child=TemplateParameterRequest(), required=False, max_length=placeholders.MAX_PARAMETERS
    )


class SavedTemplateCreateRequest(SavedTemplateChangeRequest):
    projectId = KeyField(
        source="project_id", required=False, allow_null=True, help_text="null: of the task, or of the platform"
    )
    taskId = KeyField(source="task_id", required=False, help_text="in place of request: that of a task")


class SavedTemplateQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="what this project may use")
    ordering = OrderingField("name", name="name", createdAt="created_at", updatedAt="updated_at")


class TemplateParameter(serializers.Serializer):
    name = serializers.CharField()
    type = serializers.ChoiceField(TYPES)
    label = serializers.CharField()  # type: ignore[assignment]
    help = serializers.CharField()
    default = serializers.JSONField(allow_null=True, help_text="null: a value has to be given")
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    choices = serializers.ListField(child=serializers.CharField())


class SavedTemplateItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    projectId = serializers.CharField(allow_null=True, help_text="null: offered to every project")
    request = serializers.JSONField()
    parameters = TemplateParameter(many=True)
    version = serializers.IntegerField(help_text="counts its changes")
    lastUsedAt = serializers.DateTimeField(allow_null=True, help_text="when a task was last created from it")
    lastTaskId = serializers.CharField(allow_null=True)
    createdBy = serializers.CharField(help_text="empty: the user was deleted")
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    mayChange = serializers.BooleanField()


class TemplateRunRequest(serializers.Serializer):
    """Values for a template's parameters."""

    values = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False, help_text="by parameter; null: its default"
    )
    overrides = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        required=False,
        help_text="other fields of the request; objects are merged",
    )
    projectId = KeyField(
        source="project_id", required=False, help_text="of the task, where the template is of the platform"
    )


class TemplateTask(serializers.Serializer):
    taskId = serializers.CharField()
    taskName = serializers.CharField()
    status = serializers.CharField()


class TemplateProblem(serializers.Serializer):
    field = serializers.CharField(help_text="values.NAME for a parameter")
    error = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class TemplatePreview(serializers.Serializer):
    request = serializers.JSONField(help_text="with the values")
    problems = TemplateProblem(many=True)
    preview = serializers.JSONField(allow_null=True, help_text="as of previewTask; null while a value is wrong")


class SavedTemplatesView(APIView):
    @operation("listSavedTemplates", scope="templates:read", query=SavedTemplateQuery, page=SavedTemplateItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the saved templates of your projects and of the platform."""
        rows = SavedTemplate.objects.select_related("created_by")
        rows = access.filter_visible(rows, request.user, shared=True)
        if project := query.get("project"):
            rows = rows.filter(Q(project=project) | Q(project=None))
        if words := query["search"]:
            rows = rows.filter(Q(name__icontains=words) | Q(description__icontains=words))
        return paginate_rows(rows, query, lambda row: serialize_template(request, row))

    @operation(
        "createSavedTemplate",
        scope="templates:write",
        body=SavedTemplateCreateRequest,
        data=SavedTemplateItem,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Save a template of a project (member) or of the platform (administrator), from a request or from a task. All
        problems are reported at once. 409 where the name is taken."""
        return serialize_template(request, templates.create_template(request.user, **body))


class SavedTemplateView(APIView):
    @operation("getSavedTemplate", scope="templates:read", data=SavedTemplateItem)
    def get(self, request: Request, template_id: str) -> Data:
        """Return one saved template."""
        return serialize_template(request, templates.get_template(request.user, template_id))

    @operation(
        "changeSavedTemplate",
        scope="templates:write",
        body=SavedTemplateChangeRequest,
        partial=True,
        data=SavedTemplateItem,
    )
    def patch(self, request: Request, template_id: str, body: Body) -> Data:
        """Change a saved template (a maintainer, or whoever saved it). Its tasks stay as they are; its schedules use it
        as it is now."""
        template = templates.get_template(request.user, template_id)
        return serialize_template(request, templates.change_template(request.user, template, body))

    @operation("deleteSavedTemplate", scope="templates:write")
    def delete(self, request: Request, template_id: str) -> None:
        """Delete a saved template (a maintainer, or whoever saved it). 409 while a schedule uses it."""
        templates.delete_template(request.user, templates.get_template(request.user, template_id))


class SavedTemplateTasksView(APIView):
    @operation(
        "createTaskFromTemplate",
        scope="tasks:write",
        body=TemplateRunRequest,
        data=TemplateTask,
        status=201,
        message="TASK_CREATED_OK",
        headers=["Idempotency-Key"],
    )
    def post(self, request: Request, template_id: str, body: Body) -> Data:
        """Create a task from a saved template (member). All problems are reported at once; those of a parameter have
        the field `values.NAME`."""
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > MAX_KEY_LENGTH:
            raise ApiError(400, "IDEMPOTENCY_KEY_TOO_LONG", "Idempotency-Key", high=MAX_KEY_LENGTH)
        template = templates.get_template(request.user, template_id)
        task = templates.create_task(request.user, template, **{"values": {}, **body}, key=key or None)
        return {"taskId": task.pk, "taskName": task.name, "status": task.state}


class SavedTemplatePreviewView(APIView):
    @operation("previewTaskFromTemplate", scope="templates:read", body=TemplateRunRequest, data=TemplatePreview)
    def post(self, request: Request, template_id: str, body: Body) -> Data:
        """Return what a task from a saved template would run, and its problems. Creates nothing."""
        template = templates.get_template(request.user, template_id)
        filled, preview = templates.preview_task(request.user, template, **{"values": {}, **body})
        return {
            "request": filled.request,
            "problems": [serialize_problem(problem) for problem in filled.problems],
            "preview": preview and serialize_preview(preview),
        }


def serialize_template(request: Request, row: SavedTemplate) -> dict[str, Any]:
    """Return a template as the API answers it."""
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "projectId": row.project_id,
        "request": row.request,
        "parameters": [_serialize_parameter(one) for one in row.parameters],
        "version": row.version,
        "lastUsedAt": row.last_used_at,
        "lastTaskId": row.last_task or None,
        "createdBy": row.created_by.username if row.created_by else "",
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
        "mayChange": templates.may_change(request.user, row),
    }


def _serialize_parameter(one: dict[str, Any]) -> dict[str, Any]:
    left_out = {"label": one["name"], "help": "", "default": None, "low": None, "high": None, "choices": []}
    return {**left_out, **one}
