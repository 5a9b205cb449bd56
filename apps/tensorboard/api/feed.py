"""What the programs of TensorBoards read (`fermi.tensorboard.program`): JSON without the platform's envelope. They show
the token of their environment's run, which opens nothing else. No user's token opens these addresses."""

from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.common.errors import ApiError
from apps.environments import own_secrets
from apps.tensorboard.models import TensorBoard
from apps.tensorboard.services import feed

MAX_OFFSET = 2**62


class FeedAuthentication(BaseAuthentication):
    """Authenticates the program of a TensorBoard, which becomes `request.auth`."""

    def authenticate(self, request: Request) -> tuple[None, TensorBoard] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        hosted = own_secrets.find_token_environment(token.strip())
        if hosted is None:
            raise AuthenticationFailed
        board = TensorBoard.objects.select_related("environment").filter(environment=hosted.pk).first()
        if board is None:
            raise AuthenticationFailed
        board.environment.hosted = hosted
        return None, board

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class IsTensorBoard(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, TensorBoard)


@extend_schema(exclude=True)
class FeedView(APIView):
    """What all addresses of the feed share."""

    authentication_classes = (FeedAuthentication,)
    permission_classes = (IsTensorBoard,)

    def get_board(self, request: Request) -> TensorBoard:
        """Return the TensorBoard whose program asks."""
        board = request.auth
        assert isinstance(board, TensorBoard)
        return board

    def read_number(self, request: Request, name: str) -> int:
        """Return a number of the query, 0 where it is not given. Raises ApiError 400."""
        text = request.query_params.get(name, "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > MAX_OFFSET:
            raise ApiError(400, "TENSORBOARD_FEED_QUERY", name, found=text[:40])
        return int(text)


class ServingView(FeedView):
    def post(self, request: Request) -> HttpResponse:
        """Record that the program of the present run serves."""
        board = self.get_board(request)
        TensorBoard.objects.filter(pk=board.pk).update(serving_run=board.environment.hosted.run)
        return HttpResponse(status=204)


class TasksView(FeedView):
    def get(self, request: Request) -> Response:
        """List the tasks that are shown."""
        return Response({"tasks": feed.list_tasks(self.get_board(request))})


class FilesView(FeedView):
    def get(self, request: Request, task_id: str) -> Response:
        """List the event files of a task."""
        return Response({"files": feed.list_event_files(feed.find_task(self.get_board(request), task_id))})


class ContentView(FeedView):
    def get(self, request: Request, task_id: str) -> HttpResponse:
        """Return a part of an event file."""
        task, begin = feed.find_task(self.get_board(request), task_id), self.read_number(request, "from")
        data = feed.read_part(task, request.query_params.get("path", "")[:4096], begin)
        return HttpResponse(data, content_type="application/octet-stream")


class PointsView(FeedView):
    def get(self, request: Request, task_id: str) -> Response:
        """Return stored points of a task."""
        task, after = feed.find_task(self.get_board(request), task_id), self.read_number(request, "after")
        return Response(feed.list_points(task, after))
