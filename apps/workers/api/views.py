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
from apps.workers import health, selectors, telemetry
from apps.workers.api import serializers as shapes
from apps.workers.api.authentication import JoinAuthentication, WorkerAuthentication
from apps.workers.engine import environment_store, log_upload, store
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.schema import parse_heartbeat
from apps.workers.models import JoinToken
from apps.workers.services import groups, registration, start_group
from fermi.jobs.spec import Problem


class JoinTokensView(APIView):
    @operation("listJoinTokens", query=shapes.JoinTokenQuery, page=shapes.JoinTokenItem)
    def get(self, request: Request, query: Query) -> Data:
        """What lets hosts join your projects."""
        rows = selectors.list_join_tokens(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_join_token)

    @operation("createJoinToken", body=shapes.JoinTokenCreateRequest, data=shapes.JoinTokenCreated, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Lets hosts register workers in a project (member); it is shown this once."""
        return registration.create_join_token(request.user, **body, origin=request.build_absolute_uri("/").rstrip("/"))


class JoinTokenView(APIView):
    @operation("revokeJoinToken")
    def delete(self, request: Request, token_id: str) -> None:
        """From now on nobody joins with it; workers that did stay (member)."""
        registration.revoke_join_token(request.user, token_id)


class WorkerRegisterView(APIView):
    authentication_classes = (JoinAuthentication,)

    @operation("registerWorkers", body=shapes.WorkerRegisterRequest, data=shapes.WorkersRegistered, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """A host's workers join, or join again; with a join token."""
        return {"workers": registration.register_workers(cast(JoinToken, request.auth), **body)}


class WorkerHeartbeatView(APIView):
    """Behind the ASGI server only invalid heartbeats come here: see `apps.workers.heartbeat.endpoint`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("workerHeartbeat", body=shapes.WorkerHeartbeatRequest, data=shapes.WorkerHeartbeatAnswer)
    def post(self, request: Request, body: Body) -> Data:
        """What workers do now, and what each is to do. Repeating or losing one changes nothing."""
        try:
            _, beats = parse_heartbeat(request.data)
        except ValueError as error:
            raise ApiError(400, "HEARTBEAT_INVALID", detail=str(error)) from error
        cache = HeartbeatCache()
        cache.load({beat.worker for beat in beats})
        answers = cache.hear(beats)
        cache.flush()
        return {"intervalSeconds": settings.WORKER_HEARTBEAT_S, "workers": answers}


class WorkerOrderView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)

    @operation("getWorkerOrder", data=shapes.WorkerOrder)
    def get(self, request: Request, worker_id: str) -> Data:
        """What the worker is to run, in full; with its own token."""
        found = store.read_order(worker_id)
        if found is None:
            raise ApiError(404, "ORDER_UNKNOWN", worker=worker_id)
        return found


RAW_MEDIA_TYPE = "application/octet-stream"


class RawParser(BaseParser):
    """Returns the body as bytes."""

    media_type = "*/*"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {"bytes": read_body(stream, parser_context["request"])}


class WorkerLogView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)
    parser_classes = (RawParser,)

    @operation(
        "appendWorkerLog", query=shapes.WorkerLogQuery, request_media=RAW_MEDIA_TYPE, data=shapes.WorkerLogAnswer
    )
    def put(self, request: Request, worker_id: str, task_id: str, attempt: str, rank: str, query: Query) -> Data:
        """A piece of a rank's log from byte `offset` on, as raw bytes; with the worker's own token. A piece that comes
        again is not stored again; one that lies beyond the end is 409 with `data.acknowledged`, where to go on."""
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

    @operation("getWorkerHosted", data=shapes.WorkerHosted)
    def get(self, request: Request, worker_id: str, run: str) -> Data:
        """A dev environment's run that the worker's host is to keep, in full; with the worker's own token."""
        found = environment_store.read_run_body(worker_id, run)
        if found is None:
            raise ApiError(404, "RUN_NOT_OF_WORKER", worker=worker_id, run=run)
        return found


class WorkerHostedLogView(APIView):
    authentication_classes = (WorkerAuthentication,)
    permission_classes = (AllowAny,)
    parser_classes = (RawParser,)

    @operation(
        "appendWorkerHostedLog", query=shapes.WorkerLogQuery, request_media=RAW_MEDIA_TYPE, data=shapes.WorkerLogAnswer
    )
    def put(self, request: Request, worker_id: str, run: str, query: Query) -> Data:
        """A piece of what a dev environment's run printed, as a rank's log is sent."""
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
    @operation("listWorkers", query=shapes.WorkerQuery, page=shapes.WorkerItem)
    def get(self, request: Request, query: Query) -> Data:
        """The workers of your projects."""
        judge = health.read_worker_health()
        found = paginate_rows(selectors.list_workers(request.user, query, judge), query)
        return {**found, "items": selectors.serialize_workers(found["items"], judge)}


class WorkerView(APIView):
    @operation("getWorker", data=shapes.WorkerItem)
    def get(self, request: Request, worker_id: str) -> Data:
        """One worker."""
        return selectors.serialize_worker(request.user, worker_id)

    @operation("removeWorker")
    def delete(self, request: Request, worker_id: str) -> None:
        """Forgets it, unless a task uses it (member)."""
        registration.delete_worker(request.user, worker_id)


class WorkerEnvironmentView(APIView):
    @operation("getWorkerEnvironment", data=shapes.WorkerEnvironment)
    def get(self, request: Request, worker_id: str) -> Data:
        """The environment variables that the worker's process would get if its group were started now."""
        return start_group.preview_variables(request.user, worker_id)


class WorkerTelemetryView(APIView):
    @operation("getWorkerTelemetry", query=TelemetryQuery, data=MachineTelemetry)
    def get(self, request: Request, worker_id: str, query: Query) -> Data:
        """What a worker's GPU, rank and host used, and which tasks had it."""
        return telemetry.serialize_worker_telemetry(request.user, worker_id, query)


class GroupsView(APIView):
    @operation("listWorkerGroups", query=shapes.GroupQuery, page=shapes.GroupItem)
    def get(self, request: Request, query: Query) -> Data:
        """Groups of workers."""
        found = paginate_rows(selectors.list_groups(request.user, query["search"]), query)
        return {**found, "items": selectors.serialize_groups(found["items"])}

    @operation("createWorkerGroup", body=shapes.GroupCreateRequest, data=shapes.GroupItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """A group, empty or with workers that are in none (member)."""
        return _serialize_group(request, groups.create_group(request.user, **body).pk)


class GroupView(APIView):
    @operation("getWorkerGroup", data=shapes.GroupItem)
    def get(self, request: Request, group_id: str) -> Data:
        """One group, with its workers in the order of ranks."""
        return _serialize_group(request, group_id)

    @operation(
        "changeWorkerGroup", body=shapes.GroupChangeRequest, partial=True, data=shapes.GroupItem, collects_problems=True
    )
    def patch(self, request: Request, group_id: str, body: Body, wrong: list[Problem]) -> Data:
        """Name, settings, script (member). A task that runs keeps what it was started with."""
        groups.change_group(request.user, group_id, body, wrong)
        return _serialize_group(request, group_id)

    @operation("deleteWorkerGroup")
    def delete(self, request: Request, group_id: str) -> None:
        """Its workers are then in no group, its tasks stay (member)."""
        groups.delete_group(request.user, group_id)


class GroupMoveView(APIView):
    @operation("moveWorkers", body=shapes.GroupMoveRequest, data=shapes.WorkersMoved)
    def post(self, request: Request, body: Body) -> Data:
        """Moves workers to a group, or out of any; all of them or none (member)."""
        groups.move_workers(request.user, **body)
        return {"moved": body["worker_ids"]}


class GroupStartView(APIView):
    @operation("startWorkerGroup", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Starts the group's script as a training task (member)."""
        return _serialize_group(request, start_group.start_group(request.user, group_id).pk)


class GroupStopView(APIView):
    @operation("stopWorkerGroup", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Stops the group's task; asking again changes nothing (member)."""
        return _serialize_group(request, start_group.stop_group(request.user, group_id).pk)


class GroupRestartView(APIView):
    @operation("restartWorkerGroup", data=shapes.GroupItem)
    def post(self, request: Request, group_id: str) -> Data:
        """Stops the group's task and starts a new one as soon as the workers are free (member)."""
        return _serialize_group(request, start_group.restart_group(request.user, group_id).pk)


def _serialize_group(request: Request, group_id: str) -> Data:
    groups.get_group(request.user, group_id)
    return selectors.serialize_groups(list(selectors.list_groups(request.user).filter(pk=group_id)))[0]
