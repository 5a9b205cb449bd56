"""Endpoint for the progress of a task's ranks."""

from apps.common.api import APIView, Data, Request, operation
from apps.training.api import pulse_forms as forms
from apps.training.presenters import rank_progress
from apps.training.services import actions


class TaskPulsesView(APIView):
    @operation("getTaskPulses", data=forms.TaskPulses)
    def get(self, request: Request, task_id: str) -> Data:
        """How the ranks get on now: step, time of the last one, share of time in collectives, memory. Cheap enough to
        be asked every two seconds."""
        return rank_progress.serialize_progress(actions.find_task(request.user, task_id))
