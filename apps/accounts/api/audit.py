"""Endpoints of the audit trail."""

from typing import Any

from django.http import StreamingHttpResponse
from rest_framework import serializers

from apps.accounts import audit, trail
from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.errors import ApiError
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery, paginate_rows

JSON_LINES = "application/x-ndjson"
MAX_CURSOR_DIGITS = 18


class AuditFilters(serializers.Serializer):
    project = KeyField(required=False, allow_blank=True)
    actor = serializers.CharField(max_length=150, required=False, allow_blank=True, help_text="user name")
    action = serializers.CharField(max_length=60, required=False, allow_blank=True, help_text="such as task.create")
    target = serializers.CharField(max_length=120, required=False, allow_blank=True, help_text="the whole id")
    token = serializers.CharField(max_length=16, required=False, allow_blank=True, help_text="id of an API token")
    address = serializers.CharField(max_length=64, required=False, allow_blank=True, help_text="the whole address")


class AuditQuery(PageQuery, AuditFilters):
    begin = serializers.DateTimeField(required=False, help_text="events since then")
    end = serializers.DateTimeField(required=False, help_text="events before then")
    cursor = serializers.CharField(
        max_length=MAX_CURSOR_DIGITS,
        required=False,
        allow_blank=True,
        help_text="instead of `page`: empty for the newest events, then `nextCursor` of the page before; nothing is "
        "counted, so that each page is as fast as the first",
    )
    ordering = OrderingField("-at", at="at")


class AuditExportQuery(AuditFilters):
    begin = serializers.DateTimeField(help_text="events since then")
    end = serializers.DateTimeField(help_text="events before then, within a year")


class AuditEventItem(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(allow_null=True)
    project = serializers.CharField(allow_null=True)
    action = serializers.CharField()
    actionText = serializers.CharField(help_text="what the action is called, in the language of the request")
    target = serializers.CharField()
    data = serializers.DictField()  # type: ignore[assignment]
    requestId = serializers.CharField()
    token = serializers.CharField(help_text="id of the API token of the request; empty for a browser's")
    tokenName = serializers.CharField()
    address = serializers.CharField(help_text="where the request came from")


class AuditPage(serializers.Serializer):
    items = AuditEventItem(many=True)
    total = serializers.IntegerField(allow_null=True, help_text="null with a cursor")
    page = serializers.IntegerField(allow_null=True)
    pageSize = serializers.IntegerField()
    nextCursor = serializers.CharField(
        allow_null=True, required=False, help_text="with a cursor; null on the last page"
    )


class AuditAction(serializers.Serializer):
    action = serializers.CharField()
    text = serializers.CharField()


class AuditActions(serializers.Serializer):
    items = AuditAction(many=True)


class AuditActionsView(APIView):
    @operation("listAuditActions", scope="audit:read", data=AuditActions)
    def get(self, request: Request) -> Data:
        """List the actions that the audit trail records, with what they are called in the language of the request."""
        return {"items": [{"action": action, "text": text} for action, text in trail.list_actions().items()]}


class AuditEventsView(APIView):
    @operation("listAuditEvents", scope="audit:read", query=AuditQuery, data=AuditPage)
    def get(self, request: Request, query: Query) -> Data:
        """List who did what in the projects that you maintain, newest first."""
        filters = dict(query)
        rows = trail.list_events(request.user, filters.pop("project", None), **filters)
        if "cursor" in query:
            return trail.read_page(rows, _parse_cursor(query["cursor"]), query["pageSize"])
        answer = paginate_rows(trail.select_columns(rows), query)
        return {**answer, "items": trail.describe_events(answer["items"])}


class AuditExportView(APIView):
    @operation("exportAuditEvents", scope="audit:read", query=AuditExportQuery, media=JSON_LINES)
    def get(self, request: Request, query: Query) -> Data:
        """Return the events of a span of at most a year, oldest first, as one JSON object per line. The export itself
        is recorded."""
        filters = dict(query)
        begin, end, project = filters.pop("begin"), filters.pop("end"), filters.pop("project", None) or None
        lines = trail.export_events(trail.list_events(request.user, project, **filters), begin, end)
        named: dict[str, Any] = {name: value for name, value in filters.items() if value}
        audit.record_event(
            request.user, "audit.export", "audit", project=project, begin=begin.isoformat(), end=end.isoformat(),
            filters=named,
        )  # fmt: skip
        response = StreamingHttpResponse(lines, content_type=JSON_LINES)
        response.headers["Content-Disposition"] = f'attachment; filename="audit-{begin:%Y%m%d}-{end:%Y%m%d}.jsonl"'
        return response


def _parse_cursor(text: str) -> int | None:
    if text and not (text.isascii() and text.isdecimal()):
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=text)
    return int(text) if text else None
