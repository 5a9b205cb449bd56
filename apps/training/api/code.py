"""Endpoints for the code of a task."""

from rest_framework import serializers

from apps.accounts.models import Role
from apps.code.api.serializers import CodeOrigin, FetchItem, SnapshotItem
from apps.common.api import APIView, Data, Request, operation
from apps.training.presenters import code
from apps.training.services import actions, code_source


class TaskCodeProblem(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class TaskBefore(serializers.Serializer):
    taskId = serializers.CharField()
    createdAt = serializers.DateTimeField()
    snapshotId = serializers.CharField()


class TaskCodeSource(serializers.Serializer):
    snapshotId = serializers.CharField(allow_null=True, help_text="what the task ran; null: none")
    kind = serializers.CharField(help_text="environment, git, upload, or node: it ran what lies on its nodes")
    environment = serializers.CharField(help_text="its name")
    path = serializers.CharField()
    url = serializers.CharField()
    revision = serializers.CharField()
    changed = serializers.BooleanField(
        allow_null=True, help_text="whether the source differs now from the snapshot; null: it is not known"
    )
    why = TaskCodeProblem(allow_null=True, help_text="why it could not be looked at")


class TaskCode(serializers.Serializer):
    snapshot = SnapshotItem(allow_null=True, help_text="null: it brings none, or it is being fetched")
    origin = CodeOrigin(allow_null=True, help_text="where this task's came from")
    fetch = FetchItem(allow_null=True)
    requirements = serializers.CharField()
    script = serializers.CharField(help_text="what of it the ranks run; empty: a recipe")
    previous = TaskBefore(allow_null=True, help_text="the task before it of its name in its project, with code")


class TaskCodeView(APIView):
    @operation("getTaskCode", scope="code:read", data=TaskCode)
    def get(self, request: Request, task_id: str) -> Data:
        """Return the snapshot that every attempt of the task runs, and the one of the previous task with its name."""
        return code.serialize_code(actions.find_task(request.user, task_id))


class TaskCodeSourceView(APIView):
    @operation("getTaskCodeSource", scope="code:read", data=TaskCodeSource)
    def get(self, request: Request, task_id: str) -> Data:
        """Return where the task's code came from, and whether it has changed there since. Asks the environment or the
        Git server, which takes a few seconds at most."""
        return code_source.describe_source(actions.find_task(request.user, task_id, Role.MEMBER))
