"""Endpoints of dev environments, both registered and managed ones, and of templates."""

from collections.abc import Callable
from typing import Any

from apps.accounts import access
from apps.accounts.api.serializers import ProjectItem
from apps.accounts.models import User
from apps.clusters import selectors as clusters
from apps.clusters import services as registered
from apps.clusters.api.serializers import EnvironmentChangeRequest, EnvironmentQuery, EnvironmentRegisterRequest
from apps.clusters.models import DevEnvironment
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.environments import presenters, standby
from apps.environments.api import serializers
from apps.environments.connection import read_logs
from apps.environments.models import Template
from apps.environments.services import create, lifecycle, templates
from apps.environments.validation import CreateRequest

IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_KEY_LENGTH = 200


class TemplatesView(APIView):
    @operation(
        "listEnvironmentTemplates",
        scope="environments:read",
        query=serializers.EnvironmentTemplateQuery,
        page=serializers.EnvironmentTemplate,
    )
    def get(self, request: Request, query: Query) -> Data:
        """List the templates of environments: those of the catalogue and of your projects."""
        may_use = access.make_usage_check(request.user)
        rows = presenters.list_templates(request.user, query)
        return paginate_rows(rows, query, lambda row: presenters.serialize_template(row, may_use(row.project_id)))

    @operation(
        "createEnvironmentTemplate",
        scope="environments:write",
        body=serializers.EnvironmentTemplateCreateRequest,
        data=serializers.EnvironmentTemplate,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a template of a project (member) or of the catalogue (administrator). All problems are reported at
        once. 409 where the name is taken."""
        return _serialize_template(request, templates.create_template(request.user, **body).pk)


class TemplateView(APIView):
    @operation("getEnvironmentTemplate", scope="environments:read", data=serializers.EnvironmentTemplate)
    def get(self, request: Request, template_id: str) -> Data:
        """Return one template."""
        return _serialize_template(request, template_id)

    @operation(
        "changeEnvironmentTemplate",
        scope="environments:write",
        body=serializers.EnvironmentTemplateChangeRequest,
        partial=True,
        data=serializers.EnvironmentTemplate,
    )
    def patch(self, request: Request, template_id: str, body: Body) -> Data:
        """Change a template. Environments that were created from it stay as they are."""
        templates.change_template(request.user, _get_template(request, template_id), body)
        return _serialize_template(request, template_id)

    @operation("deleteEnvironmentTemplate", scope="environments:write")
    def delete(self, request: Request, template_id: str) -> None:
        """Delete a template. Environments that were created from it stay."""
        templates.delete_template(request.user, _get_template(request, template_id))


class EnvironmentsView(APIView):
    @operation("listEnvironments", scope="environments:read", query=EnvironmentQuery, page=serializers.EnvironmentItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the dev environments of your projects."""
        found = paginate_rows(clusters.list_environments(request.user, query), query, clusters.serialize_environment)
        presenters.attach_details(request.user, found["items"])
        return found

    @operation(
        "registerEnvironment",
        scope="environments:write",
        body=EnvironmentRegisterRequest,
        data=serializers.EnvironmentDetail,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Register an environment by hand (maintainer). 409 where the name is taken."""
        return _serialize_environment(request, registered.register_environment(request.user, **body).pk)


class MakeEnvironmentView(APIView):
    @operation(
        "makeEnvironment",
        scope="environments:write",
        body=serializers.EnvironmentMakeRequest,
        data=serializers.EnvironmentDetail,
        status=201,
        headers=[IDEMPOTENCY_HEADER],
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create an environment from a template and start it (member). All problems are reported at once. 409 where the
        name is taken."""
        key = request.headers.get(IDEMPOTENCY_HEADER, "")
        if len(key) > MAX_KEY_LENGTH:
            raise ApiError(400, "IDEMPOTENCY_KEY_TOO_LONG", IDEMPOTENCY_HEADER, high=MAX_KEY_LENGTH)
        named = {name: body.pop(name) for name in ("template", "project", "name")}
        where = {name: body.pop(name, None) or "" for name in ("cluster", "zone", "host")}
        asked = CreateRequest(**named, **where, changes=body)
        return _serialize_environment(request, create.create_environment(request.user, asked, key=key).pk)


class EnvironmentView(APIView):
    @operation("getEnvironment", scope="environments:read", data=serializers.EnvironmentDetail)
    def get(self, request: Request, environment_id: str) -> Data:
        """Return one dev environment."""
        return _serialize_environment(request, environment_id)

    @operation(
        "changeEnvironment",
        scope="environments:write",
        body=EnvironmentChangeRequest,
        partial=True,
        data=serializers.EnvironmentDetail,
    )
    def patch(self, request: Request, environment_id: str, body: Body) -> Data:
        """Change what is stored about an environment, or put it out of service and back (maintainer)."""
        lifecycle.change_environment(request.user, _get_environment(request, environment_id), body)
        return _serialize_environment(request, environment_id)

    @operation("removeEnvironment", scope="environments:write", data=serializers.EnvironmentDetail, nullable=True)
    def delete(self, request: Request, environment_id: str) -> Data:
        """Delete an environment: a managed one with its disk (member), of another one what is stored about it
        (maintainer). 409 while a task holds it."""
        lifecycle.delete_environment(request.user, _get_environment(request, environment_id))
        return _find_environment(request, environment_id)


class ProjectWarmView(APIView):
    @operation("setProjectWarm", scope="projects:write", body=serializers.ProjectWarmRequest, data=ProjectItem)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Set whether a process with the training stack imported stands by in each environment of the project that has
        no setting of its own (maintainer)."""
        project = access.get_project(request.user, project_id)
        standby.switch_project(request.user, project, body["warm"])
        role = access.get_role(request.user, project)
        return {"id": project.pk, "name": project.name, "role": role, "warm": project.warm,
                "createdAt": project.created_at}  # fmt: skip


class StartView(APIView):
    @operation("startEnvironment", scope="environments:write", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Start a managed environment that does not run (member)."""
        return _apply_action(request, environment_id, lifecycle.start_environment)


class StopView(APIView):
    @operation("stopEnvironment", scope="environments:write", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Stop a managed environment; its disk is kept (member). 409 while a task holds it."""
        return _apply_action(request, environment_id, lifecycle.stop_environment)


class RestartView(APIView):
    @operation("restartEnvironment", scope="environments:write", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Restart a managed environment with its sizes as they are now; its processes end (member). 409 while a task
        holds it."""
        return _apply_action(request, environment_id, lifecycle.restart_environment)


class KeepView(APIView):
    @operation(
        "keepEnvironment",
        scope="environments:write",
        body=serializers.EnvironmentKeepRequest,
        data=serializers.EnvironmentDetail,
    )
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Keep a managed environment from stopping when idle, for a number of hours (member)."""
        return _apply_action(
            request, environment_id, lambda user, one: lifecycle.postpone_idle_stop(user, one, body["hours"])
        )


class ResizeView(APIView):
    @operation(
        "resizeEnvironment",
        scope="environments:write",
        body=serializers.EnvironmentResizeRequest,
        data=serializers.EnvironmentDetail,
    )
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Change the sizes of a managed environment from its next start on (member)."""
        return _apply_action(request, environment_id, lambda user, one: lifecycle.resize_environment(user, one, body))


class CloneView(APIView):
    @operation(
        "cloneEnvironment",
        scope="environments:write",
        body=serializers.EnvironmentCloneRequest,
        data=serializers.EnvironmentDetail,
        status=201,
    )
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Create another environment with the same settings and an empty disk (member)."""
        environment = _get_environment(request, environment_id)
        return _serialize_environment(request, create.clone_environment(request.user, environment, body["name"]).pk)


class LogsView(APIView):
    @operation(
        "getEnvironmentLogs",
        scope="environments:read",
        query=serializers.EnvironmentLogsQuery,
        data=serializers.EnvironmentLogs,
    )
    def get(self, request: Request, environment_id: str, query: Query) -> Data:
        """Return the output of the environment's newest run."""
        environment = _get_environment(request, environment_id)
        lifecycle.get_hosted(environment)
        return read_logs(environment, query["cursor"], query["limit"])


class LifeView(APIView):
    @operation("getEnvironmentLife", scope="environments:read", data=serializers.EnvironmentLife)
    def get(self, request: Request, environment_id: str) -> Data:
        """List the events of an environment, and how each of its runs ended."""
        return presenters.serialize_life(_get_environment(request, environment_id).pk)


def _get_template(request: Request, template_id: str) -> Template:
    return access.get_object(Template.objects.all(), request.user, template_id, shared=True)


def _serialize_template(request: Request, template_id: str) -> Data:
    row = presenters.list_templates(request.user, {}).filter(pk=template_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return presenters.serialize_template(row, access.make_usage_check(request.user)(row.project_id))


def _get_environment(request: Request, environment_id: str) -> DevEnvironment:
    rows = DevEnvironment.objects.select_related("cluster", "project", "owner")
    return access.get_object(rows, request.user, environment_id)


def _apply_action(request: Request, environment_id: str, service: Callable[[User, DevEnvironment], None]) -> Data:
    service(request.user, _get_environment(request, environment_id))
    return _serialize_environment(request, environment_id)


def _find_environment(request: Request, environment_id: str) -> dict[str, Any] | None:
    found = clusters.get_environment(request.user, environment_id)
    if found is not None:
        presenters.attach_details(request.user, [found])
    return found


def _serialize_environment(request: Request, environment_id: str) -> Data:
    found = _find_environment(request, environment_id)
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found
