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
from apps.environments import logs, presenters, standby
from apps.environments.api import serializers
from apps.environments.models import Template
from apps.environments.services import create, lifecycle, templates
from apps.environments.validation import CreateRequest

IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_KEY_LENGTH = 200


class TemplatesView(APIView):
    @operation(
        "listEnvironmentTemplates", query=serializers.EnvironmentTemplateQuery, page=serializers.EnvironmentTemplate
    )
    def get(self, request: Request, query: Query) -> Data:
        """What environments can be made from: the operators' catalogue, and your projects' own."""
        may_use = access.make_usage_check(request.user)
        rows = presenters.list_templates(request.user, query)
        return paginate_rows(rows, query, lambda row: presenters.serialize_template(row, may_use(row.project_id)))

    @operation(
        "createEnvironmentTemplate",
        body=serializers.EnvironmentTemplateCreateRequest,
        data=serializers.EnvironmentTemplate,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """A template of a project (member), or of the catalogue (administrator). All problems come at once."""
        return _serialize_template(request, templates.create_template(request.user, **body).pk)


class TemplateView(APIView):
    @operation("getEnvironmentTemplate", data=serializers.EnvironmentTemplate)
    def get(self, request: Request, template_id: str) -> Data:
        """One template."""
        return _serialize_template(request, template_id)

    @operation(
        "changeEnvironmentTemplate",
        body=serializers.EnvironmentTemplateChangeRequest,
        partial=True,
        data=serializers.EnvironmentTemplate,
    )
    def patch(self, request: Request, template_id: str, body: Body) -> Data:
        """Changes it; environments that were made from it stay as they are."""
        templates.change_template(request.user, _get_template(request, template_id), body)
        return _serialize_template(request, template_id)

    @operation("deleteEnvironmentTemplate")
    def delete(self, request: Request, template_id: str) -> None:
        """Removes it; environments that were made from it stay."""
        templates.delete_template(request.user, _get_template(request, template_id))


class EnvironmentsView(APIView):
    @operation("listEnvironments", query=EnvironmentQuery, page=serializers.EnvironmentItem)
    def get(self, request: Request, query: Query) -> Data:
        """The dev environments of your projects."""
        found = paginate_rows(clusters.list_environments(request.user, query), query, clusters.serialize_environment)
        presenters.attach_details(request.user, found["items"])
        return found

    @operation("registerEnvironment", body=EnvironmentRegisterRequest, data=serializers.EnvironmentDetail, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """An environment registered by hand (maintainer)."""
        return _serialize_environment(request, registered.register_environment(request.user, **body).pk)


class MakeEnvironmentView(APIView):
    @operation(
        "makeEnvironment",
        body=serializers.EnvironmentMakeRequest,
        data=serializers.EnvironmentDetail,
        status=201,
        headers=[IDEMPOTENCY_HEADER],
    )
    def post(self, request: Request, body: Body) -> Data:
        """Makes one from a template and starts it (member). All problems come at once."""
        key = request.headers.get(IDEMPOTENCY_HEADER, "")
        if len(key) > MAX_KEY_LENGTH:
            raise ApiError(400, "IDEMPOTENCY_KEY_TOO_LONG", IDEMPOTENCY_HEADER, high=MAX_KEY_LENGTH)
        named = {name: body.pop(name) for name in ("template", "project", "name")}
        where = {name: body.pop(name, None) or "" for name in ("cluster", "zone", "host")}
        asked = CreateRequest(**named, **where, changes=body)
        return _serialize_environment(request, create.create_environment(request.user, asked, key=key).pk)


class EnvironmentView(APIView):
    @operation("getEnvironment", data=serializers.EnvironmentDetail)
    def get(self, request: Request, environment_id: str) -> Data:
        """One dev environment."""
        return _serialize_environment(request, environment_id)

    @operation("changeEnvironment", body=EnvironmentChangeRequest, partial=True, data=serializers.EnvironmentDetail)
    def patch(self, request: Request, environment_id: str, body: Body) -> Data:
        """Changes what is known of it, or takes it out of service and back (maintainer)."""
        lifecycle.change_environment(request.user, _get_environment(request, environment_id), body)
        return _serialize_environment(request, environment_id)

    @operation("removeEnvironment", data=serializers.EnvironmentDetail, nullable=True)
    def delete(self, request: Request, environment_id: str) -> Data:
        """Of one that the platform made: begins its deletion, disk and all (member). Of another: forgets it
        (maintainer). Not while a task holds it."""
        lifecycle.delete_environment(request.user, _get_environment(request, environment_id))
        return _find_environment(request, environment_id)


class ProjectWarmView(APIView):
    @operation("setProjectWarm", body=serializers.ProjectWarmRequest, data=ProjectItem)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Whether a process stands by, with the training stack imported, in each of its environments that does not say
        otherwise (maintainer)."""
        project = access.get_project(request.user, project_id)
        standby.switch_project(request.user, project, body["warm"])
        role = access.get_role(request.user, project)
        return {"id": project.pk, "name": project.name, "role": role, "warm": project.warm,
                "createdAt": project.created_at}  # fmt: skip


class StartView(APIView):
    @operation("startEnvironment", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Starts one that the platform made and that does not run (member)."""
        return _apply_action(request, environment_id, lifecycle.start_environment)


class StopView(APIView):
    @operation("stopEnvironment", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Stops it; its disk stays (member). Not while a task holds it."""
        return _apply_action(request, environment_id, lifecycle.stop_environment)


class RestartView(APIView):
    @operation("restartEnvironment", data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str) -> Data:
        """Ends its processes and begins anew, with its sizes as they are now (member)."""
        return _apply_action(request, environment_id, lifecycle.restart_environment)


class KeepView(APIView):
    @operation("keepEnvironment", body=serializers.EnvironmentKeepRequest, data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """However idle, it does not stop by itself for so many hours (member)."""
        return _apply_action(
            request, environment_id, lambda user, one: lifecycle.postpone_idle_stop(user, one, body["hours"])
        )


class ResizeView(APIView):
    @operation("resizeEnvironment", body=serializers.EnvironmentResizeRequest, data=serializers.EnvironmentDetail)
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Other sizes, from the next start on (member)."""
        return _apply_action(request, environment_id, lambda user, one: lifecycle.resize_environment(user, one, body))


class CloneView(APIView):
    @operation(
        "cloneEnvironment", body=serializers.EnvironmentCloneRequest, data=serializers.EnvironmentDetail, status=201
    )
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Another one like it, with an empty disk (member)."""
        environment = _get_environment(request, environment_id)
        return _serialize_environment(request, create.clone_environment(request.user, environment, body["name"]).pk)


class LogsView(APIView):
    @operation("getEnvironmentLogs", query=serializers.EnvironmentLogsQuery, data=serializers.EnvironmentLogs)
    def get(self, request: Request, environment_id: str, query: Query) -> Data:
        """What its newest run printed."""
        environment = _get_environment(request, environment_id)
        lifecycle.get_hosted(environment)
        return logs.read_logs(environment, query["cursor"], query["limit"])


class LifeView(APIView):
    @operation("getEnvironmentLife", data=serializers.EnvironmentLife)
    def get(self, request: Request, environment_id: str) -> Data:
        """What happened to it, and what each of its runs came to."""
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
