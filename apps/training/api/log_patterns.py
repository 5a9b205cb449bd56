"""Endpoints for the patterns of printed lines that became curves of a task."""

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Request, operation
from apps.training.services import log_patterns
from fermi.metrics.text_lines import MAX_NAME_LENGTH


class LogPatternField(serializers.Serializer):
    name = serializers.CharField(help_text="as it is printed")
    shownAs = serializers.CharField(help_text="the curve's name; empty: it is left out")
    unit = serializers.CharField()


class LogPattern(serializers.Serializer):
    key = serializers.CharField()
    line = serializers.CharField(help_text="the line, with names in braces")
    example = serializers.CharField()
    enabled = serializers.BooleanField()
    fields = LogPatternField(many=True)  # type: ignore[assignment]


class LogPatternList(serializers.Serializer):
    items = LogPattern(many=True)


class LogPatternRequest(serializers.Serializer):
    enabled = serializers.BooleanField(required=False)
    fields = serializers.DictField(  # type: ignore[assignment]
        child=serializers.CharField(max_length=MAX_NAME_LENGTH, allow_blank=True),
        required=False,
        help_text="printed name -> the curve's name; empty leaves the field out",
    )


class LogPatternsView(APIView):
    @operation("listLogPatterns", scope="tasks:read", data=LogPatternList)
    def get(self, request: Request, task_id: str) -> Data:
        """List the shapes of lines in the task's logs that became curves."""
        return {"items": log_patterns.list_patterns(request.user, task_id)}


class LogPatternView(APIView):
    @operation("changeLogPattern", scope="tasks:write", body=LogPatternRequest, data=LogPattern)
    def patch(self, request: Request, task_id: str, key: str, body: Body) -> Data:
        """Switch a pattern on or off, name its fields or leave them out, in all points of the task (member). What is
        switched off or left out is deleted; switched on again, it begins with the next line."""
        return log_patterns.change_pattern(request.user, task_id, key, body)
