"""Queries of TensorBoards, and what each of them has come to."""

from datetime import datetime
from enum import StrEnum

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.access import AnyUser
from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.environments.models import Hosted
from apps.environments.states import DesiredState, EnvironmentState, idleness
from apps.tensorboard.models import TensorBoard


class TensorBoardState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    ENDING = "ending"


_BEGINNING = (EnvironmentState.CREATING, EnvironmentState.STARTING, EnvironmentState.RUNNING)


def list_tensorboards(user: AnyUser) -> QuerySet[TensorBoard]:
    """Return the TensorBoards of the projects that the user may see, newest first."""
    rows = access.filter_visible(TensorBoard.objects.all(), user, "environment__project")
    return _join(rows).order_by("-created_at", "pk")


def find_tensorboard(user: User, tensorboard_id: str, role: Role = Role.VIEWER) -> TensorBoard:
    """Return a TensorBoard. Raises ApiError 404, and 403 without `role` in its project."""
    board = list_tensorboards(user).filter(pk=tensorboard_id).first()
    if board is None:
        raise ApiError(404, "NOT_FOUND")
    access.require_role(user, board.environment.project_id, role)
    return board


def find_usable(key: str) -> TensorBoard | None:
    """Return the TensorBoard that opening the tasks of this key leads to, or None."""
    board = _join(TensorBoard.objects.filter(key=key)).first()
    return board if board and is_usable(board) else None


def is_usable(board: TensorBoard) -> bool:
    """Return whether it serves or may come to serve."""
    return get_state(board) in (TensorBoardState.STARTING, TensorBoardState.READY)


def get_state(board: TensorBoard) -> TensorBoardState:
    """Return what a TensorBoard has come to; load it with its environment's lifecycle."""
    hosted = get_hosted(board)
    if hosted.state == EnvironmentState.FAILED and hosted.wanted != DesiredState.DELETED:
        return TensorBoardState.FAILED
    if hosted.wanted != DesiredState.RUNNING or hosted.state not in _BEGINNING:
        return TensorBoardState.ENDING
    serves = hosted.state == EnvironmentState.RUNNING and board.serving_run == hosted.run
    return TensorBoardState.READY if serves else TensorBoardState.STARTING


def get_hosted(board: TensorBoard) -> Hosted:
    """Return the lifecycle of a TensorBoard's environment."""
    hosted: Hosted = board.environment.hosted
    return hosted


def compute_end(board: TensorBoard, moment: datetime) -> datetime | None:
    """Return when it ends if it is not used from now on; None unless it serves."""
    hosted = get_hosted(board)
    if get_state(board) is not TensorBoardState.READY or hosted.active_at is None:
        return None
    use = idleness.IdleFacts(moment, hosted.active_at, False, hosted.idle_stop_minutes, hosted.keep_until)
    return idleness.compute_stop_time(use)


def _join(rows: QuerySet[TensorBoard]) -> QuerySet[TensorBoard]:
    return rows.select_related("environment__hosted", "environment__cluster", "made_by")
