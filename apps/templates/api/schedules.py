"""Endpoints of schedules: tasks that are created at the moments of a cron expression."""

from typing import Any

from rest_framework import serializers

from apps.accounts import access
from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField
from apps.common.texts import serialize_reason
from apps.templates.models import MissedPolicy, OverlapPolicy, RunOutcome, Schedule, ScheduleRun
from apps.templates.services import schedules

NEXT_MOMENTS = 5
MISSED = [(one.value, one.value) for one in MissedPolicy]
OVERLAPS = [(one.value, one.value) for one in OverlapPolicy]
OUTCOMES = [(one.value, one.value) for one in RunOutcome]


class ScheduleChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    templateId = KeyField(source="template_id", required=False, allow_null=True, help_text="or a request")
    values = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False, help_text="of the template's parameters"
    )
    request = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False, allow_null=True, help_text="the body of a create"
    )
    cron = serializers.CharField(max_length=100, help_text="minute, hour, day of the month, month, day of the week")
    zone = serializers.CharField(max_length=60, required=False, default="UTC", help_text="Europe/Berlin")
    missed = serializers.ChoiceField(
        MISSED, required=False, help_text="moments that passed meanwhile: none, the last, or the last ten are run"
    )
    overlap = serializers.ChoiceField(
        OVERLAPS, required=False, help_text="while a task of an earlier moment goes on; skip by default"
    )
    enabled = serializers.BooleanField(required=False)


class ScheduleCreateRequest(ScheduleChangeRequest):
    projectId = KeyField(source="project_id")


class ScheduleQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True)
    template = KeyField(required=False, allow_blank=True, help_text="those that run this saved template")
    ordering = OrderingField("name", name="name", createdAt="created_at", nextAt="next_at")


class ScheduleReason(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class ScheduleItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    templateId = serializers.CharField(allow_null=True)
    templateName = serializers.CharField(help_text="empty: it has a request of its own")
    values = serializers.DictField(child=serializers.JSONField())
    request = serializers.JSONField(allow_null=True)
    cron = serializers.CharField()
    zone = serializers.CharField()
    missed = serializers.ChoiceField(MISSED)
    overlap = serializers.ChoiceField(OVERLAPS)
    enabled = serializers.BooleanField()
    stopped = ScheduleReason(allow_null=True, help_text="why the platform stopped it; null: it did not")
    owner = serializers.CharField(help_text="whose rights its tasks have")
    nextAt = serializers.DateTimeField(allow_null=True)
    lastAt = serializers.DateTimeField(allow_null=True, help_text="the moment of its newest task")
    lastTaskId = serializers.CharField(allow_null=True)
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    mayChange = serializers.BooleanField()


class ScheduleRunQuery(PageQuery):
    outcome = serializers.ListField(child=serializers.ChoiceField(OUTCOMES), max_length=4, required=False)


class ScheduleRunItem(serializers.Serializer):
    moment = serializers.DateTimeField(help_text="at which its task was due")
    outcome = serializers.ChoiceField(OUTCOMES)
    taskId = serializers.CharField(allow_null=True)
    reason = ScheduleReason(allow_null=True, help_text="why it was skipped or failed, or what it waits for")
    decidedAt = serializers.DateTimeField()


class ScheduleMomentsQuery(serializers.Serializer):
    cron = serializers.CharField(max_length=100)
    zone = serializers.CharField(max_length=60, default="UTC")


class ScheduleMoments(serializers.Serializer):
    moments = serializers.ListField(child=serializers.DateTimeField())


class SchedulesView(APIView):
    @operation("listSchedules", scope="schedules:read", query=ScheduleQuery, page=ScheduleItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the schedules of your projects."""
        rows = access.filter_visible(Schedule.objects.select_related("owner", "template"), request.user)
        if project := query.get("project"):
            rows = rows.filter(project=project)
        if template := query.get("template"):
            rows = rows.filter(template=template)
        if words := query["search"]:
            rows = rows.filter(name__icontains=words)
        return paginate_rows(rows, query, lambda row: serialize_schedule(request, row))

    @operation("createSchedule", scope="schedules:write", body=ScheduleCreateRequest, data=ScheduleItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Create tasks at the moments of a cron expression (member). They have your rights. All problems are reported
        at once, also those that a task would have now. 409 where the name is taken."""
        return serialize_schedule(request, schedules.create_schedule(request.user, **body))


class ScheduleMomentsView(APIView):
    @operation("listScheduleMoments", scope="schedules:read", query=ScheduleMomentsQuery, data=ScheduleMoments)
    def get(self, request: Request, query: Query) -> Data:
        """List the next five moments of a cron expression."""
        return {"moments": schedules.list_next_moments(query["cron"], query["zone"], NEXT_MOMENTS)}


class ScheduleView(APIView):
    @operation("getSchedule", scope="schedules:read", data=ScheduleItem)
    def get(self, request: Request, schedule_id: str) -> Data:
        """Return one schedule."""
        return serialize_schedule(request, schedules.get_schedule(request.user, schedule_id))

    @operation("changeSchedule", scope="schedules:write", body=ScheduleChangeRequest, partial=True, data=ScheduleItem)
    def patch(self, request: Request, schedule_id: str, body: Body) -> Data:
        """Change, pause or resume a schedule (a maintainer, or its owner). Whoever changes what it runs becomes its
        owner. A schedule that is resumed begins with the next moment."""
        schedule = schedules.get_schedule(request.user, schedule_id)
        return serialize_schedule(request, schedules.change_schedule(request.user, schedule, body))

    @operation("deleteSchedule", scope="schedules:write")
    def delete(self, request: Request, schedule_id: str) -> None:
        """Delete a schedule with its history (a maintainer, or its owner). Its tasks stay."""
        schedules.delete_schedule(request.user, schedules.get_schedule(request.user, schedule_id))


class ScheduleRunsView(APIView):
    @operation("listScheduleRuns", scope="schedules:read", query=ScheduleRunQuery, page=ScheduleRunItem)
    def get(self, request: Request, schedule_id: str, query: Query) -> Data:
        """List the newest moments of a schedule and what became of each."""
        rows = schedules.get_schedule(request.user, schedule_id).runs.order_by("-moment")
        if outcomes := query.get("outcome"):
            rows = rows.filter(outcome__in=outcomes)
        return paginate_rows(rows, query, _serialize_run)

    @operation("runSchedule", scope="schedules:write", data=ScheduleRunItem, status=201)
    def post(self, request: Request, schedule_id: str) -> Data:
        """Run a schedule now, besides its moments (a maintainer, or its owner): its task is created within seconds,
        with the owner's rights and by the policy for overlaps. 409 while it is paused, or while ten moments wait."""
        return _serialize_run(schedules.run_schedule(request.user, schedules.get_schedule(request.user, schedule_id)))


def serialize_schedule(request: Request, row: Schedule) -> dict[str, Any]:
    """Return a schedule as the API answers it."""
    return {
        "id": row.pk,
        "name": row.name,
        "projectId": row.project_id,
        "templateId": row.template_id,
        "templateName": row.template.name if row.template else "",
        "values": row.values,
        "request": row.request,
        "cron": row.cron,
        "zone": row.zone,
        "missed": row.missed,
        "overlap": row.overlap,
        "enabled": row.enabled,
        "stopped": serialize_reason(row.stopped, row.stopped_params),
        "owner": row.owner.username,
        "nextAt": row.next_at,
        "lastAt": row.last_at,
        "lastTaskId": row.last_task or None,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
        "mayChange": schedules.may_change(request.user, row),
    }


def _serialize_run(row: ScheduleRun) -> dict[str, Any]:
    return {
        "moment": row.moment,
        "outcome": row.outcome,
        "taskId": row.task or None,
        "reason": serialize_reason(row.code, row.params),
        "decidedAt": row.decided_at,
    }
