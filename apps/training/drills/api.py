"""Endpoints for drills."""

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.openapi import KeyField, Reason
from apps.common.pages import OrderingField, PageQuery
from apps.training.drills import presenters, services
from apps.training.preflight.api import PREFLIGHT_STATUSES, STOP_ACTIONS
from fermi.jobs.drill import FAIL, PASS, UNKNOWN
from fermi.planning.request import MAX_DRILL_MINUTES

DRILL_LEVELS = [(level, level) for level in (PASS, FAIL, UNKNOWN)]


class DrillCreateRequest(serializers.Serializer):
    taskId = KeyField(source="task_id", allow_null=True, default=None, help_text="of a task that is there, or:")
    request = serializers.DictField(
        allow_null=True, default=None, help_text="what would be sent to POST /training-tasks"
    )
    minutes = serializers.FloatField(
        min_value=1,
        max_value=MAX_DRILL_MINUTES,
        allow_null=True,
        default=None,
        help_text="drillMinutes of the request by default",
    )


class DrillQuery(PageQuery):
    status = serializers.ChoiceField(PREFLIGHT_STATUSES, required=False)
    task = KeyField(required=False, allow_blank=True, help_text="id")
    ordering = OrderingField("-createdAt", createdAt="run__created_at")


class DrillCheckpoint(serializers.Serializer):
    path = serializers.CharField()
    sizeBytes = serializers.IntegerField(allow_null=True)
    step = serializers.IntegerField(allow_null=True, help_text="null = the script did not say")


class DrillVerdict(serializers.Serializer):
    level = serializers.ChoiceField(DRILL_LEVELS)
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(help_text="what to do")


class Drill(serializers.Serializer):
    id = serializers.CharField()
    status = serializers.ChoiceField(PREFLIGHT_STATUSES)
    reason = Reason(allow_null=True)
    taskId = serializers.CharField(allow_null=True, help_text="whose restart it rehearses; null: of a request")
    stage = serializers.BooleanField(help_text="whether it goes before the task's first attempt")
    projectId = serializers.CharField()
    owner = serializers.CharField()
    minutes = serializers.FloatField()
    createdAt = serializers.DateTimeField()
    startedAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)
    attempt = serializers.IntegerField()
    step = serializers.IntegerField(allow_null=True, help_text="the newest")
    verdict = DrillVerdict(allow_null=True)
    rank = serializers.IntegerField(allow_null=True, help_text="that was killed")
    node = serializers.CharField(allow_null=True)
    checkpoint = DrillCheckpoint(allow_null=True)
    killedStep = serializers.IntegerField(allow_null=True)
    resumedStep = serializers.IntegerField(allow_null=True)
    stepsLost = serializers.IntegerField(allow_null=True)
    restartSeconds = serializers.FloatField(allow_null=True, help_text="from the death to the next attempt's start")
    resumedSeconds = serializers.FloatField(allow_null=True, help_text="from the death to the first step beyond")
    allowedActions = serializers.ListField(child=serializers.ChoiceField(STOP_ACTIONS))


class DrillsView(APIView):
    @operation("listDrills", scope="tasks:read", query=DrillQuery, page=Drill)
    def get(self, request: Request, query: Query) -> Data:
        """List the drills of your projects, newest first."""
        return paginate_rows(services.list_drills(request.user, query), query, presenters.serialize_drill)

    @operation("createDrill", scope="tasks:write", body=DrillCreateRequest, data=Drill, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Start a drill as soon as its environments are free: a rank is killed after the first checkpoint, to see
        whether training resumes."""
        return presenters.serialize_drill(services.request_drill(request.user, **body))


class DrillView(APIView):
    @operation("getDrill", scope="tasks:read", data=Drill)
    def get(self, request: Request, drill_id: str) -> Data:
        """Return one drill: whether training resumed, from which step, and how much time it lost."""
        return presenters.serialize_drill(services.find_drill(request.user, drill_id))


class DrillStopView(APIView):
    @operation("stopDrill", scope="tasks:write", data=Drill)
    def post(self, request: Request, drill_id: str) -> Data:
        """Stop a drill. Repeating the request changes nothing."""
        return presenters.serialize_drill(services.stop_drill(request.user, drill_id))
