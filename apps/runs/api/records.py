"""Endpoints for tags, notes and archived runs."""

from typing import Any

from django.core.validators import RegexValidator
from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Request, operation
from apps.common.errors import ApiError
from apps.common.openapi import KeyField, Reason
from apps.common.texts import render_text
from apps.runs.models import MAX_NOTE_LENGTH
from apps.runs.services import records
from apps.runs.services.records import BulkAction, BulkResult
from fermi.planning.tags import MAX_TAG_LENGTH, MAX_TAGS, TAG_PATTERN

ACTIONS = [(action.value, action.value) for action in BulkAction]
TAG_ACTIONS = (BulkAction.ADD_TAGS, BulkAction.REMOVE_TAGS)


class TagField(serializers.CharField):
    """The name of a tag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            max_length=MAX_TAG_LENGTH, validators=[RegexValidator(TAG_PATTERN, code="TAG_INVALID")], **options
        )


class RunChangeRequest(serializers.Serializer):
    tags = serializers.ListField(child=TagField(), max_length=MAX_TAGS, help_text="all of them; others are removed")
    note = serializers.CharField(
        max_length=MAX_NOTE_LENGTH, allow_blank=True, trim_whitespace=False, help_text="Markdown"
    )
    archived = serializers.BooleanField(help_text="lists of runs leave it out")


class RunRecord(serializers.Serializer):
    """What people say of a run."""

    taskId = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    note = serializers.CharField(help_text="Markdown")
    archivedAt = serializers.DateTimeField(allow_null=True, help_text="null: it is not archived")


class RunBulkRequest(serializers.Serializer):
    taskIds = serializers.ListField(
        source="task_ids", child=KeyField(), min_length=1, max_length=records.MAX_TASKS, help_text="of tasks"
    )
    action = serializers.ChoiceField(ACTIONS)
    tags = serializers.ListField(
        child=TagField(), max_length=MAX_TAGS, default=list, help_text="with addTags and removeTags: which"
    )


class RunBulkItem(serializers.Serializer):
    taskId = serializers.CharField()
    done = serializers.BooleanField()
    refusal = Reason(allow_null=True, help_text="why nothing was done; null: it was done")


class RunBulkResult(serializers.Serializer):
    items = RunBulkItem(many=True, help_text="one for each task, in the order of the request")
    done = serializers.IntegerField(help_text="how many were done")


class RunRecordView(APIView):
    @operation("changeRun", scope="runs:write", body=RunChangeRequest, partial=True, data=RunRecord)
    def patch(self, request: Request, task_id: str, body: Body) -> Data:
        """Change the tags of a task, its note, or whether lists leave it out. Needs the role of a member."""
        return records.change_record(request.user, task_id, body)


class RunsBulkView(APIView):
    @operation("changeRuns", scope="runs:write", body=RunBulkRequest, data=RunBulkResult)
    def post(self, request: Request, body: Body) -> Data:
        """Tag, archive, stop or delete many tasks. Each is done or refused by itself; stops and deletions that do not
        fit into 20 seconds are refused with RUNS_NOT_REACHED: send these again."""
        action = BulkAction(body["action"])
        if bool(body["tags"]) != (action in TAG_ACTIONS):
            raise ApiError(400, "RUN_TAGS_NEEDED" if action in TAG_ACTIONS else "RUN_TAGS_NOT_NEEDED", "tags")
        results = records.change_runs(request.user, body["task_ids"], action, body["tags"])
        return {"items": [_serialize(one) for one in results], "done": sum(one.refusal is None for one in results)}


def _serialize(result: BulkResult) -> dict[str, Any]:
    refusal = None
    if result.refusal:
        (problem,) = result.refusal.problems
        message, hint = render_text(problem.code, problem.params)
        refusal = {"code": problem.code, "message": message, "hint": hint}
    return {"taskId": result.task, "done": refusal is None, "refusal": refusal}
