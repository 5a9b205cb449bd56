"""Endpoints for the queue: who waits for what, why not yet, and when."""

from datetime import UTC, datetime, timedelta

from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.clock import now
from apps.training.api import queue_forms as forms
from apps.training.reports import queue, timeline
from apps.training.services import actions, reorder

DAY = timedelta(days=1)
MAX_DATETIME = datetime.max.replace(tzinfo=UTC)


class QueueView(APIView):
    @operation("listQueue", query=forms.QueueQuery, page=forms.QueueItem)
    def get(self, request: Request, query: Query) -> Data:
        """Tasks that wait for their turn, first who is first. Tasks that you may not see have no name."""
        return queue.list_queue(request.user, query)


class TaskQueueView(APIView):
    @operation("getTaskQueue", data=forms.TaskQueue)
    def get(self, request: Request, task_id: str) -> Data:
        """Why the task has not begun: its place in the queue, what must end first, when it will probably begin, and
        what would let it begin sooner."""
        return queue.explain_queue(request.user, actions.find_task_of_any_kind(request.user, task_id))


class TaskMoveView(APIView):
    @operation("moveTask", body=forms.TaskMoveRequest, data=forms.TaskQueue)
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Puts a task that waits before another one of its project and class (maintainer)."""
        return queue.explain_queue(request.user, reorder.move_in_queue(request.user, task_id, body["before"]))


class TimelineView(APIView):
    @operation("getTimeline", query=forms.TimelineQuery, data=forms.Timeline)
    def get(self, request: Request, query: Query) -> Data:
        """Who had each environment, who has it until when, who gets it next, and when it is reserved or maintained."""
        begins = query.get("from") or now() - DAY
        ends = query.get("to") or min(begins, MAX_DATETIME - 2 * DAY) + 2 * DAY
        return timeline.build_timeline(request.user, begins, ends, query.get("project", ""))
