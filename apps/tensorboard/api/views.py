"""Endpoints of TensorBoards."""

from rest_framework import serializers

from apps.accounts.models import Role
from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.common.openapi import KeyField
from apps.environments.api.serializers import HostedReason
from apps.tensorboard import presenters, selectors
from apps.tensorboard.selectors import TensorBoardState
from apps.tensorboard.services import boards

STATES = [(state.value, state.value) for state in TensorBoardState]


class TensorBoardOpenRequest(serializers.Serializer):
    taskIds = serializers.ListField(
        source="task_ids", child=KeyField(), min_length=1, max_length=boards.MAX_TASKS, help_text="of one project"
    )


class TensorBoardItem(serializers.Serializer):
    id = serializers.CharField()
    environmentId = serializers.CharField(help_text="in which it runs")
    projectId = serializers.CharField()
    taskIds = serializers.ListField(child=serializers.CharField())
    state = serializers.ChoiceField(STATES)
    reason = HostedReason(allow_null=True, help_text="why it is not ready")
    url = serializers.CharField(
        allow_null=True, help_text="where a browser opens it, from the console's address on; null until it is ready"
    )
    endsAt = serializers.DateTimeField(allow_null=True, help_text="when it ends, if nobody uses it")
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()


class TensorBoardsView(APIView):
    @operation("listTensorboards", scope="tensorboards:read", query=PageQuery, page=TensorBoardItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the TensorBoards of your projects, the newest first."""
        return paginate_rows(selectors.list_tensorboards(request.user), query, presenters.serialize_tensorboard)

    @operation(
        "openTensorboard", scope="tensorboards:write", body=TensorBoardOpenRequest, data=TensorBoardItem, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return the TensorBoard of some tasks of one project; one is created where there is none (member). It follows
        tasks that run, and ends when it was not used for 30 minutes. Read it again until its state is `ready`."""
        board = boards.open_tensorboard(request.user, **body)
        return presenters.serialize_tensorboard(selectors.find_tensorboard(request.user, board.pk))


class TensorBoardView(APIView):
    @operation("getTensorboard", scope="tensorboards:read", data=TensorBoardItem)
    def get(self, request: Request, tensorboard_id: str) -> Data:
        """Return one TensorBoard."""
        return presenters.serialize_tensorboard(selectors.find_tensorboard(request.user, tensorboard_id))

    @operation("endTensorboard", scope="tensorboards:write")
    def delete(self, request: Request, tensorboard_id: str) -> None:
        """End a TensorBoard (member): its environment is deleted with all that was copied. The tasks keep what they
        have."""
        board = selectors.find_tensorboard(request.user, tensorboard_id, Role.MEMBER)
        boards.end_tensorboard(board, request.user.username)
