"""TensorBoards as the API shows them."""

from typing import Any

from apps.common.clock import now
from apps.common.texts import get_request_language, render_code, serialize_reason
from apps.environments.states import EnvironmentState
from apps.tensorboard import selectors
from apps.tensorboard.models import TensorBoard
from apps.tensorboard.selectors import TensorBoardState
from apps.tensorboard.services.boards import DOOR


def serialize_tensorboard(board: TensorBoard) -> dict[str, Any]:
    """Return a TensorBoard; load it with its environment's lifecycle and who made it."""
    state = selectors.get_state(board)
    return {
        "id": board.pk,
        "environmentId": board.environment_id,
        "projectId": board.environment.project_id,
        "taskIds": board.tasks,
        "state": state,
        "reason": _serialize_reason(board, state),
        "url": f"/environments/{board.environment_id}/open?door={DOOR}" if state is TensorBoardState.READY else None,
        "endsAt": selectors.compute_end(board, now()),
        "createdBy": board.made_by.username if board.made_by else "",
        "createdAt": board.created_at,
    }


def _serialize_reason(board: TensorBoard, state: TensorBoardState) -> dict[str, str] | None:
    """Return why it is not ready: what its environment waits for, or does; None for a ready one."""
    hosted, lang = selectors.get_hosted(board), get_request_language()
    if state is TensorBoardState.READY:
        return None
    if hosted.reason:
        return serialize_reason(hosted.reason, hosted.reason_params, lang)
    if state is not TensorBoardState.STARTING:
        return serialize_reason("TENSORBOARD_ENDING", {}, lang)
    doing = hosted.seen.get("doing")
    if doing and hosted.state != EnvironmentState.RUNNING:
        message, hint = render_code(doing["code"], doing["params"], lang)
        return {"code": doing["code"], "message": message, "hint": hint}
    return serialize_reason("TENSORBOARD_STARTING", {}, lang)
