"""Endpoints for the code of a task."""

from apps.accounts.models import Role
from apps.common.api import APIView, Data, Request, operation
from apps.training.api import code_forms
from apps.training.presenters import code
from apps.training.services import actions, code_source


class TaskCodeView(APIView):
    @operation("getTaskCode", data=code_forms.TaskCode)
    def get(self, request: Request, task_id: str) -> Data:
        """The snapshot that every attempt of the task gets, and the one of the task before it."""
        return code.serialize_code(actions.find_task(request.user, task_id))


class TaskCodeSourceView(APIView):
    @operation("getTaskCodeSource", data=code_forms.TaskCodeSource)
    def get(self, request: Request, task_id: str) -> Data:
        """Where the task's code came from, and whether it has changed there since: the environment or the Git server is
        asked, which takes a few seconds at most."""
        return code_source.describe_source(actions.find_task(request.user, task_id, Role.MEMBER))
