"""Endpoints of workers and groups, for hosts and for users."""

from typing import IO, Any, cast

from django.conf import settings
from django.http import HttpResponse, JsonResponse
from rest_framework.parsers import BaseParser
from rest_framework.permissions import AllowAny

from apps.common import exception_handler
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.renderers import read_body
from apps.telemetry.api.serializers import MachineTelemetry, TelemetryQuery
from apps.training.public import serialize_problem
from apps.workers import health, selectors
from apps.workers.api import serializers as shapes
from apps.workers.api.authentication import JoinAuthentication, WorkerAuthentication
from apps.workers.engine import environment_store, log_upload, store
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.schema import parse_heartbeat
from apps.workers.models import JoinToken
from apps.workers.services import groups, registration, start_group
from fermi.jobs.spec import Problem


class JoinTokensView(APIView):
    @operation("listJoinTokens", scope="workers:read", query=shapes.JoinTokenQuery, page=shapes.JoinTokenItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the join tokens of your projects, without their values."""
        rows = selectors.list_join_tokens(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_join_token)

    @operation(
        "createJoinToken",
        scope="workers:write",
        body=shapes.JoinTokenCreateRequest,
        data=shapes.JoinTokenCreated,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a token with which hosts register workers in a project (member). The answer is the only one that
        contains its value."""
        return registration.create_join_token(request.user, **body, origin=request.build_absolute_uri("/").rstrip("/"))


class JoinTokenView(APIView):
    @operation("revokeJoinToken", scope="workers:write")
    def delete(self, request: Request, token_id: str) -> None:
        """Revoke a join token: it registers no more workers; those registered with it stay (member)."""
        registration.revoke_join_token(request.user, token_id)


class WorkerRegisterView(APIView):
    authentication_classes = (JoinAuthentication,)

    @operation(
        "registerWorkers", scope="worker", body=shapes.WorkerRegisterRequest, data=shapes.WorkersRegistered, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Register the workers of a host, or register them again; needs a join token. 409 where a worker id or a node
        name is taken."""
        return {"workers": registration.register_workers(cast(JoinToken, request.auth), **body)}


class WorkerHeartbeatView(APIView):
    """Handles heartbeats elsewhere than behind the ASGI server, which passes only invalid ones on: see
    `apps.workers.heartbeat.endpoint`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("workerHeartbeat", scope="worker", body=shapes.WorkerHeartbeatRequest, data=shapes.WorkerHeartbeatAnswer)
    def post(self, request: Request, body: Body) -> Data:
        """Report what workers do, and return what each of them has to do. Repeating or losing a heartbeat changes
        nothing."""
        try:
            _, beats = parse_heartbeat(request.data)
        except ValueError as error:
            raise ApiError(400, "HEARTBEAT_INVALID", detail=str(error)) from error
        cache = HeartbeatCache()
        cache.load({beat.worker for beat in beats})
        answers = cache.hear(beats)
        cache.flush()
        return {"intervalSeconds": settings.WORKER_HEARTBEAT_SECONDS, "workers": answers}


class WorkerOrderView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)

    @operation("getWorkerOrder", scope="worker", data=shapes.WorkerOrder)
    def get(self, request: Request, worker_id: str) -> Data:
        """Return the whole order that the worker has to run; needs its own token."""
        found = store.read_order(worker_id)
        if found is None:
            raise ApiError(404, "ORDER_UNKNOWN", worker=worker_id)
        return found


RAW_MEDIA_TYPE = "application/octet-stream"


class RawParser(BaseParser):
    """Parser that returns the body as bytes."""

    media_type = "*/*"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {"bytes": read_body(stream, parser_context["request"])}


class WorkerLogView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)
    parser_classes = (RawParser,)

    @operation(
        "appendWorkerLog",
        scope="worker",
        query=shapes.WorkerLogQuery,
        request_media=RAW_MEDIA_TYPE,
        data=shapes.WorkerLogAnswer,
    )
    def put(self, request: Request, worker_id: str, task_id: str, attempt: str, rank: str, query: Query) -> Data:
        """Append raw bytes to a rank's log at byte `offset`; needs the worker's own token. A repeated piece is not
        stored again; one beyond the end is refused with 409 and `data.acknowledged`, the offset to continue from. 404
        where the rank is not the worker's."""
        data = cast(dict[str, Any], request.data).get("bytes", b"")
        if not all(number.isdecimal() and len(number) < 10 for number in (attempt, rank)):
            raise ApiError(404, "NOT_FOUND")
        try:
            known = log_upload.append_rank_log(worker_id, task_id, int(attempt), int(rank), query["offset"], data)
        except log_upload.OffsetGapError as gap:
            return _make_gap_response(gap, query["offset"])
        return {"acknowledged": known}


class WorkerHostedView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)

    @operation("getWorkerHosted", scope="worker", data=shapes.WorkerHosted)
    def get(self, request: Request, worker_id: str, run: str) -> Data:
        """Return a dev environment's run that the worker's host has to keep running; needs the worker's token."""
        found = environment_store.read_run_body(worker_id, run)
        if found is None:
            raise ApiError(404, "RUN_NOT_OF_WORKER", worker=worker_id, run=run)
        return found


class WorkerHostedLogView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)
    parser_classes = (RawParser,)

    @operation(
        "appendWorkerHostedLog",
        scope="worker",
        query=shapes.WorkerLogQuery,
        request_media=RAW_MEDIA_TYPE,
        data=shapes.WorkerLogAnswer,
    )
    def put(self, request: Request, worker_id: str, run: str, query: Query) -> Data:
        """Append raw bytes to the log of a dev environment's run, in the same way as to a rank's log."""
        data = cast(dict[str, Any], request.data).get("bytes", b"")
        try:
            return {"acknowledged": log_upload.append_run_log(worker_id, run, query["offset"], data)}
        except log_upload.OffsetGapError as gap:
            return _make_gap_response(gap, query["offset"])


def _make_gap_response(gap: log_upload.OffsetGapError, offset: int) -> HttpResponse:
    error = ApiError(409, "LOG_GAP", "offset", offset=offset, acknowledged=gap.acknowledged)
    return JsonResponse(
        {**exception_handler.build_envelope(error), "data": {"acknowledged": gap.acknowledged}}, status=409
    )


class WorkersView(APIView):
    @operation("listWorkers", scope="workers:read", query=shapes.WorkerQuery, page=shapes.WorkerItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the workers of your projects."""
        judge = health.read_worker_health()
        found = paginate_rows(selectors.list_workers(request.user, query, judge), query)
        return {**found, "items": selectors.serialize_workers(found["items"], judge)}


class WorkerView(APIView):
    @operation("getWorker", scope="workers:read", data=shapes.WorkerItem)
    def get(self, request: Request, worker_id: str) -> Data:
        """Return one worker."""
        return selectors.serialize_worker(request.user, worker_id)

    @operation("removeWorker", scope="workers:write")
    def delete(self, request: Request, worker_id: str) -> None:
        """Delete a worker that no task uses (member)."""
        registration.delete_worker(request.user, worker_id)


class WorkerEnvironmentView(APIView):
    @operation("getWorkerEnvironment", scope="workers:read", data=shapes.WorkerEnvironment)
    def get(self, request: Request, worker_id: str) -> Data:
        """Return the environment variables that the worker's process would get if its group were started now. 409 where
        it is in no group."""
        env, problems = start_group.preview_variables(request.user, worker_id)
        return {"env": env, "problems": [serialize_problem(one) for one in problems]}


class WorkerTelemetryView(APIView):
    @operation("getWorkerTelemetry", scope="workers:read", query=TelemetryQuery, data=MachineTelemetry)
    def get(self, request: Request, worker_id: str, query: Query) -> Data:
        """Return what a worker's GPU, rank and host used, and which tasks held it."""
        return selectors.serialize_worker_telemetry(request.user, worker_id, query)


class GroupsView(APIView):
    @operation("listWorkerGroups", scope="workers:read", query=shapes.GroupQuery, page=shapes.GroupItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the groups of workers."""
        found = paginate_rows(selectors.list_groups(request.user, query["search"]), query)
        return {**found, "items": selectors.serialize_groups(found["items"])}

    @operation(
        "createWorkerGroup", scope="workers:write", body=shapes.GroupCreateRequest, data=shapes.GroupItem, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a group, empty or with workers that are in none (member). 409 where the name is taken."""
        return _serialize_group(request, groups.create_group(request.user, **body).pk)


class GroupView(APIView):
    @operation("getWorkerGroup", scope="workers:read", data=shapes.GroupItem)
    def get(self, request: Request, group_id: str) -> Data:
        """Return one group with its workers in the order of ranks."""
        return _serialize_group(request, group_id)

    @operation(
        "changeWorkerGroup",
        scope="workers:write",
        body=shapes.GroupChangeRequest,
        partial=True,
        data=shapes.GroupItem,
        collects_problems=True,
    )
    def patch(self, request: Request, group_id: str, body: Body, wrong: list[Problem]) -> Data:
        """Change a group's name, settings or script (member). A running task keeps the settings that it was started
        with."""
        groups.change_group(request.user, group_id, body, wrong)
        return _serialize_group(request, group_id)

    @operation("deleteWorkerGroup", scope="workers:write")
    def delete(self, request: Request, group_id: str) -> None:
        """Delete a group: its workers are in no group afterwards, its tasks stay (member). 409 while it runs."""
        groups.delete_group(request.user, group_id)


class GroupMoveView(APIView):
    @operation("moveWorkers", scope="workers:write", body=shapes.GroupMoveRequest, data=shapes.WorkersMoved)
    def post(self, request: Request, body: Body) -> Data:
        """Move workers to a group or out of their group, all of them or none (member). 409 while a group concerned
        runs."""
        groups.move_workers(request.user, **body)
        return {"moved": body["worker_ids"]}


class GroupStartView(APIView):
    @operation("startWorkerGroup", scope="workers:write", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Start the group's script as a training task (member). 409 while it runs already."""
        return _serialize_group(request, start_group.start_group(request.user, group_id).pk)


class GroupStopView(APIView):
    @operation("stopWorkerGroup", scope="workers:write", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Stop the group's task (member). Repeating the request changes nothing."""
        return _serialize_group(request, start_group.stop_group(request.user, group_id).pk)


class GroupRestartView(APIView):
    @operation("restartWorkerGroup", scope="workers:write", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Stop the group's task, and start a new one as soon as the workers are free (member)."""
        return _serialize_group(request, start_group.restart_group(request.user, group_id).pk)


def _serialize_group(request: Request, group_id: str) -> Data:
    groups.get_group(request.user, group_id)
    return selectors.serialize_groups(list(selectors.list_groups(request.user).filter(pk=group_id)))[0]
