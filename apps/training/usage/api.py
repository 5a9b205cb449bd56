"""Endpoints for usage and its cost."""

from django.http import HttpResponse
from rest_framework import serializers

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.openapi import DateTime, KeyField
from apps.scheduling.api.serializers import UsageParts
from apps.scheduling.selectors import get_month_start
from apps.training.services import actions
from apps.training.usage import report
from apps.training.usage.report import GROUPS

GROUPING_CHOICES = [(name, name) for name in GROUPS]
FORMAT_CHOICES = [(name, name) for name in ("json", "csv")]


class UsageQuery(serializers.Serializer):
    by = serializers.ChoiceField(GROUPING_CHOICES, default="project")
    project = KeyField(required=False, allow_blank=True, help_text="id")
    to = DateTime(required=False, help_text="now by default")
    format = serializers.ChoiceField(FORMAT_CHOICES, default="json")
    locals()["from"] = DateTime(required=False, help_text="this month's beginning (UTC) by default")


class UsageSum(UsageParts):
    """GPU-hours, by what they were used for."""

    gpuHours = serializers.FloatField()
    openGpuHours = serializers.FloatField(help_text="of these, held at this moment: not yet sorted into parts")
    cost = serializers.FloatField(allow_null=True, help_text="null: nobody has said a price")
    goodput = serializers.FloatField(allow_null=True, help_text="share that moved training forward")
    waited = serializers.FloatField(help_text="before that: GPU-hours for which tasks waited for what they then held")
    ettr = serializers.FloatField(
        allow_null=True,
        help_text="effective training time ratio: the same share, of waited and held time",
    )


class ModelFlops(serializers.Serializer):
    """Model FLOPs per second as the trainer reports them, in the newest attempt."""

    tflops = serializers.FloatField(help_text="of all ranks together")
    peakTflops = serializers.FloatField(allow_null=True, help_text="of all GPUs; null: of a type that is not known")
    utilisation = serializers.FloatField(allow_null=True, help_text="model FLOPs utilisation (MFU)")


class UsageItem(UsageSum):
    key = serializers.CharField(help_text="id, user name, or month")
    name = serializers.CharField()
    tasks = serializers.IntegerField()


class UsageReport(serializers.Serializer):
    items = UsageItem(many=True, help_text="the most GPU-hours first")
    total = UsageSum()
    currency = serializers.CharField()
    to = serializers.DateTimeField()
    locals()["from"] = serializers.DateTimeField()


class TaskUsageNode(UsageParts):
    environmentId = serializers.CharField(allow_null=True, help_text="null: it was removed")
    name = serializers.CharField()
    zone = serializers.CharField()
    gpuType = serializers.CharField()
    gpus = serializers.IntegerField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    open = serializers.BooleanField(help_text="it is held now")
    cost = serializers.FloatField(allow_null=True)


class TaskUsage(UsageParts):
    """A task's time, in seconds of the task; its environments are weighted by their GPUs."""

    queuedSeconds = serializers.FloatField(help_text="since it was created, without what it held")
    heldSeconds = serializers.FloatField()
    gpuHours = serializers.FloatField()
    cost = serializers.FloatField(allow_null=True, help_text="null: nobody has said a price")
    currency = serializers.CharField()
    goodput = serializers.FloatField(allow_null=True, help_text="share of held GPU time that moved training forward")
    ettr = serializers.FloatField(
        allow_null=True,
        help_text="effective training time ratio: the same share, of queued and held time",
    )
    modelFlops = ModelFlops(allow_null=True, help_text="null: the trainer does not say its FLOPs")
    nodes = TaskUsageNode(many=True)


class UsageView(APIView):
    @operation("getUsage", scope="usage:read", query=UsageQuery, data=UsageReport, other_media="text/csv")
    def get(self, request: Request, query: Query) -> Data:
        """Return the GPU-hours of your projects between two times, what they were used for, and their cost; as CSV with
        `format=csv`."""
        ends = query.get("to") or now()
        begins = query.get("from") or get_month_start(ends)
        if begins >= ends:
            raise ApiError(400, "TIMES_BACKWARDS", "to")
        told = report.report_usage(
            request.user, by=query["by"], begins=begins, ends=ends, project=query.get("project", "")
        )
        if query["format"] == "json":
            return told
        response = HttpResponse(report.format_csv(told), content_type="text/csv; charset=utf-8")
        name = f"usage-{query['by']}-{begins:%Y%m%d}-{ends:%Y%m%d}.csv"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


class TaskUsageView(APIView):
    @operation("getTaskUsage", scope="tasks:read", data=TaskUsage)
    def get(self, request: Request, task_id: str) -> Data:
        """Return what the task's time was used for (queued, held, and how much advanced training) and its cost."""
        return report.report_task_usage(actions.find_task_of_any_kind(request.user, task_id))
