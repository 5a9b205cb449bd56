"""Shapes of a task's code."""

from rest_framework import serializers

from apps.code.api.forms import CodeOrigin, FetchItem, SnapshotItem


class TaskBefore(serializers.Serializer):
    taskId = serializers.CharField()
    createdAt = serializers.DateTimeField()
    snapshotId = serializers.CharField()


class TaskCode(serializers.Serializer):
    snapshot = SnapshotItem(allow_null=True, help_text="null: it brings none, or it is being fetched")
    origin = CodeOrigin(allow_null=True, help_text="where this task's came from")
    fetch = FetchItem(allow_null=True)
    requirements = serializers.CharField()
    script = serializers.CharField(help_text="what of it the ranks run; empty: a recipe")
    previous = TaskBefore(allow_null=True, help_text="the task before it of its name in its project, with code")
