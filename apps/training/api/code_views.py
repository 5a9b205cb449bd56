"""What code a task runs."""

from apps.common.api import APIView, Data, Request, operation
from apps.training.api import code_forms
from apps.training.services import actions
from apps.training.shown import code


class TaskCodeView(APIView):
    @operation("getTaskCode", data=code_forms.TaskCode)
    def get(self, request: Request, task_id: str) -> Data:
        """The snapshot that every attempt of the task gets, and the one of the task before it."""
        return code.shown(actions.find(request.user, task_id))
