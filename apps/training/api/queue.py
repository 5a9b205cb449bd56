"""Endpoints for the queue: what waits, why, and when it will probably start."""

from datetime import UTC, datetime, timedelta

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.clock import now
from apps.common.openapi import DateTime, KeyField, Reason
from apps.common.pages import PageQuery
from apps.training.api.serializers import PRIORITY_CLASSES
from apps.training.reports import queue, timeline
from apps.training.services import actions, reorder


class QueueQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="id")
    cluster = KeyField(required=False, allow_blank=True, help_text="id")


class QueueAsks(serializers.Serializer):
    nodes = serializers.IntegerField(allow_null=True, help_text="environments; null: as many as it takes")
    gpus = serializers.IntegerField(allow_null=True, help_text="null: all that these environments have")
    gpuTypes = serializers.ListField(child=serializers.CharField(), help_text="empty: any")
    text = serializers.CharField(help_text="the same in words")


class QueueAhead(serializers.Serializer):
    taskId = serializers.CharField(allow_null=True, help_text="null: a task that you may not see")
    name = serializers.CharField(help_text="empty: a task that you may not see")
    until = serializers.DateTimeField(
        allow_null=True, help_text="when it ends, as declared or as tasks like it did; null: nobody knows"
    )


class QueueOutlook(serializers.Serializer):
    reason = Reason(allow_null=True, help_text="why it has not begun; null: it begins now, or you may not see it")
    begins = serializers.DateTimeField(allow_null=True, help_text="probably; null: nobody knows")
    early = serializers.DateTimeField(allow_null=True, help_text="probably not before")
    late = serializers.DateTimeField(allow_null=True, help_text="probably not after; null: or any time later")
    after = QueueAhead(many=True, help_text="tasks that must end first")


class QueueItem(QueueOutlook):
    """A task in the queue. Of one that you may not see: its position, class, age and the capacity that it requests."""

    number = serializers.IntegerField(help_text="its place in the queue, from 1")
    taskId = serializers.CharField(allow_null=True)
    taskName = serializers.CharField()
    projectId = serializers.CharField(allow_null=True)
    owner = serializers.CharField()
    priority = serializers.ChoiceField(PRIORITY_CLASSES)
    asks = QueueAsks()
    since = serializers.DateTimeField(help_text="when its age began")
    preemptible = serializers.BooleanField()
    mayMove = serializers.BooleanField(
        help_text="whether you may put it elsewhere among those of its project and class"
    )


class QueueNeed(serializers.Serializer):
    environmentId = serializers.CharField(allow_null=True, help_text="null: one that you may not see")
    name = serializers.CharField()
    held = serializers.BooleanField()
    heldBy = serializers.CharField(allow_null=True, help_text="a task's id; null: nobody, or one that you may not see")
    heldByName = serializers.CharField(allow_null=True, help_text="its name")


class QueueEngine(serializers.Serializer):
    position = serializers.IntegerField(allow_null=True, help_text="null: the engine does not say")
    reason = serializers.CharField(help_text="in the engine's words")
    begins = serializers.DateTimeField(allow_null=True, help_text="when the engine expects it to begin; null: unknown")


class TaskQueue(QueueOutlook):
    taskId = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="null: it does not stand in line")
    of = serializers.IntegerField(help_text="how many stand in line")
    needs = QueueNeed(many=True, help_text="environments that are kept for it")
    sooner = Reason(many=True, help_text="changes that would let it begin sooner")
    engine = QueueEngine(allow_null=True, help_text="where the engine's own queue decides when it begins")


class TaskMoveRequest(serializers.Serializer):
    before = KeyField(allow_null=True, help_text="id of a task of the same project and class; null: behind all of them")


SPAN_KINDS = [(kind, kind) for kind in ("held", "next", "reserved", "maintenance")]


class TimelineQuery(serializers.Serializer):
    locals()["from"] = DateTime(required=False, help_text="a day ago by default")
    to = DateTime(required=False, help_text="two days after `from` by default; at most 100")
    project = KeyField(required=False, allow_blank=True, help_text="id: only its environments")


class TimelineSpan(serializers.Serializer):
    """A period in which an environment is held or reserved. `next`: which task gets it next, as far as is known now."""

    taskId = serializers.CharField(allow_null=True, help_text="null: no task, or one that you may not see")
    name = serializers.CharField(help_text="of the task, the project or the maintenance; empty: one you may not see")
    locals()["from"] = serializers.DateTimeField(allow_null=True, help_text="null: nobody knows")
    to = serializers.DateTimeField(allow_null=True, help_text="null: nobody knows")
    sure = serializers.BooleanField(help_text="whether its end is a fact or was declared, and not estimated")
    kind = serializers.ChoiceField(SPAN_KINDS)


class TimelineEnvironment(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    zone = serializers.CharField(help_text="its name")
    gpuType = serializers.CharField()
    gpuCount = serializers.IntegerField()
    spans = TimelineSpan(many=True)


class Timeline(serializers.Serializer):
    environments = TimelineEnvironment(many=True)


DAY = timedelta(days=1)
MAX_DATETIME = datetime.max.replace(tzinfo=UTC)


class QueueView(APIView):
    @operation("listQueue", scope="tasks:read", query=QueueQuery, page=QueueItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the waiting tasks in the order in which they will start. Tasks that you may not see have no name."""
        return queue.list_queue(request.user, query)


class TaskQueueView(APIView):
    @operation("getTaskQueue", scope="tasks:read", data=TaskQueue)
    def get(self, request: Request, task_id: str) -> Data:
        """Return why the task has not started: its position in the queue, what must end first, when it will probably
        start, and what would let it start sooner."""
        return queue.explain_queue(request.user, actions.find_task_of_any_kind(request.user, task_id))


class TaskMoveView(APIView):
    @operation("moveTask", scope="tasks:write", body=TaskMoveRequest, data=TaskQueue)
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Move a waiting task before another one of the same project and class (maintainer). 409 where it is not in the
        queue, or the other one is not of its project and class."""
        return queue.explain_queue(request.user, reorder.move_in_queue(request.user, task_id, body["before"]))


class TimelineView(APIView):
    @operation("getTimeline", scope="environments:read", query=TimelineQuery, data=Timeline)
    def get(self, request: Request, query: Query) -> Data:
        """Return for each environment which tasks held it, which task holds it until when, which one is next, and when
        it is reserved or under maintenance."""
        begins = query.get("from") or now() - DAY
        ends = query.get("to") or min(begins, MAX_DATETIME - 2 * DAY) + 2 * DAY
        return timeline.build_timeline(request.user, begins, ends, query.get("project", ""))
