"""Endpoints for usage and its cost."""

from django.http import HttpResponse

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.scheduling.selectors import get_month_start
from apps.training.api import usage_forms as forms
from apps.training.reports import usage
from apps.training.services import actions


class UsageView(APIView):
    @operation("getUsage", query=forms.UsageQuery, data=forms.UsageReport, other_media="text/csv")
    def get(self, request: Request, query: Query) -> Data:
        """GPU-hours of your projects between two moments, what they went into, and what they cost; as CSV with
        `format=csv`."""
        ends = query.get("to") or now()
        begins = query.get("from") or get_month_start(ends)
        if begins >= ends:
            raise ApiError(400, "TIMES_BACKWARDS", "to")
        told = usage.report_usage(
            request.user, by=query["by"], begins=begins, ends=ends, project=query.get("project", "")
        )
        if query["format"] == "json":
            return told
        response = HttpResponse(usage.format_csv(told), content_type="text/csv; charset=utf-8")
        name = f"usage-{query['by']}-{begins:%Y%m%d}-{ends:%Y%m%d}.csv"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


class TaskUsageView(APIView):
    @operation("getTaskUsage", data=forms.TaskUsage)
    def get(self, request: Request, task_id: str) -> Data:
        """What the task's time went into: queued, held, and of that how much moved training forward; and what it
        cost."""
        return usage.report_task_usage(actions.find_task_of_any_kind(request.user, task_id))
