"""MLflow's REST API as MLflow's clients request it: JSON without the platform's envelope, and errors in their shape:

{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": …}
"""

from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request as AnyRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.authentication import BearerAuthentication
from apps.accounts.api.permissions import require_scope
from apps.common.api import Request
from apps.common.errors import ApiError
from apps.common.exception_handler import handle_exception
from apps.files.api.responses import make_file_response
from apps.mlflow import presenters
from apps.mlflow.api import messages
from apps.mlflow.api.authentication import RunAuthentication
from apps.mlflow.api.routes import find_route
from apps.mlflow.callers import Caller
from apps.mlflow.services import artifacts
from apps.policies.api.permissions import WithinSignInPolicy
from apps.training.public import Task

RECORDED_HEADER, RANK_HEADER = "X-Fermi-Recorded", "X-Fermi-Rank"
"""Sent by processes whose calls the probe records (`fermi.probe.mlflow_hooks`)."""
ERROR_CODES = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    405: "ENDPOINT_NOT_FOUND",
    409: "RESOURCE_ALREADY_EXISTS",
    413: "REQUEST_LIMIT_EXCEEDED",
    415: "BAD_REQUEST",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}
CODES_OF_OTHER_MEANING = {
    "MLFLOW_ROUTE_UNKNOWN": "ENDPOINT_NOT_FOUND",
    "ROWS_FULL": "RESOURCE_LIMIT_EXCEEDED",
    "MLFLOW_ARTIFACT_NOT_WRITTEN": "INVALID_STATE",
}
SEARCH_PATHS = frozenset(
    ("experiments/search", "runs/search", "logged-models/search", "registered-models/get-latest-versions")
)
"""Paths whose POST changes nothing."""
STATUSES = {"MLFLOW_EXPERIMENT_EXISTS": 400, "MLFLOW_MODEL_EXISTS": 400}
"""What MLflow's server answers where it differs from the platform's own status."""


class MayTrack(BasePermission):
    """Allows a narrow token to read with the scope `runs:read` and to log with `tracking:write`."""

    def has_permission(self, request: AnyRequest, view: Any) -> bool:
        """Return True. Raises ApiError 403 SCOPE_MISSING or TOKEN_TASK_OTHER."""
        reads = request.method == "GET" or (request.method == "POST" and view.kwargs.get("path") in SEARCH_PATHS)
        rights = getattr(request.user, "token_rights", None)
        logs = rights is not None and rights.has_scope("tracking:write")
        require_scope(request.user, "runs:read" if reads and not logs else "tracking:write")
        return True


@extend_schema(exclude=True)
class MlflowView(APIView):
    """What all addresses below `/mlflow` share."""

    authentication_classes = (RunAuthentication, BearerAuthentication)
    permission_classes = (IsAuthenticated, WithinSignInPolicy, MayTrack)

    def handle_exception(self, exc: Exception) -> Response:
        """Return an error in MLflow's shape."""
        response = handle_exception(exc, self.get_exception_handler_context())
        found = response.data
        first = found["errors"][0]
        text = " ".join(part for part in (first["message"], first["hint"]) if part)
        status = STATUSES.get(first["error"], response.status_code)
        code = CODES_OF_OTHER_MEANING.get(first["error"]) or ERROR_CODES.get(response.status_code, "INTERNAL_ERROR")
        headers = {name: value for name, value in response.headers.items() if name != "Content-Type"}
        return Response({"error_code": code, "message": text}, status=status, headers=headers)

    def get_caller(self, request: Request) -> Caller:
        """Return who calls."""
        task = request.auth if isinstance(request.auth, Task) else None
        rank = request.headers.get(RANK_HEADER, "")
        number = int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 8 else 0
        return Caller(request.user, task, bool(request.headers.get(RECORDED_HEADER)), number)


class RoutesView(MlflowView):
    """Answers the requests of `routes`."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)

    def _answer(self, request: Request, path: str) -> Response:
        found = find_route(request.method or "", path)
        if found is None:
            raise ApiError(404, "MLFLOW_ROUTE_UNKNOWN", path=f"{request.method} {path}"[:200])
        route, names = found
        if any("\0" in name for name in names.values()):
            raise ApiError(404, "NOT_FOUND")
        given: Any = request.data if request.method != "GET" else None
        if not given:
            given = {name: _read_query(request, route.message, name) for name in request.query_params}
        if _has_null(given):
            raise ApiError(400, "NUL_CHARACTER")
        body = messages.read_message(route.message, given)
        return Response(route.answer(self.get_caller(request), body, **names))

    def get(self, request: Request, path: str) -> Response:
        return self._answer(request, path)

    def post(self, request: Request, path: str) -> Response:
        return self._answer(request, path)

    def patch(self, request: Request, path: str) -> Response:
        return self._answer(request, path)

    def put(self, request: Request, path: str) -> Response:
        return self._answer(request, path)

    def delete(self, request: Request, path: str) -> Response:
        return self._answer(request, path)


class RawParser(BaseParser):
    """Leaves a body as the stream that it comes in."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream


class ArtifactView(MlflowView):
    """Reads and writes artifacts."""

    parser_classes = (RawParser,)

    def get(self, request: Request, path: str = "") -> HttpResponseBase:
        caller = self.get_caller(request)
        if path:
            file, size = artifacts.open_artifact(caller, path)
            name = path.rpartition("/")[2]
            return make_file_response(request._request, file, name=name, size=size, tag=f"{size:x}")
        query = messages.read_message(messages.ArtifactPath, dict(request.query_params.items()))
        files = artifacts.list_artifacts(caller, query.path)
        return Response({"files": [presenters.serialize_file(file, file.path.rpartition("/")[2]) for file in files]})

    def put(self, request: Request, path: str = "") -> Response:
        artifacts.write_artifact(self.get_caller(request), path, request._request)
        return Response({})


class UnknownRouteView(MlflowView):
    """Answers all other addresses."""

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise ApiError(404, "MLFLOW_ROUTE_UNKNOWN", path=f"{request.method} {request.path}"[:200])


def answer_health(request: Any) -> HttpResponse:
    """Answer MLflow's health check."""
    return HttpResponse("OK", content_type="text/plain")


def _read_query(request: Request, message: Any, name: str) -> Any:
    """Return a parameter of the query: a list where the message has one."""
    values = request.query_params.getlist(name)
    kinds = message.__annotations__
    return values if "list" in str(kinds.get(name, "")) else values[-1]


def _has_null(found: Any) -> bool:
    """Return True if a text has U+0000, which no database stores. Bounded by the size of a body."""
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "\0" in one:
                return True
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
    return False
