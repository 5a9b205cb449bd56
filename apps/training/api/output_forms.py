"""Serializers of outputs and checkpoints as files."""

from rest_framework import serializers

from apps.files.api.serializers import PathField


class TaskOutputs(serializers.Serializer):
    sizeBytes = serializers.IntegerField()
    count = serializers.IntegerField(help_text="of files")
    countedAt = serializers.DateTimeField(allow_null=True, help_text="every minute or so, until the task has ended")
    stored = serializers.BooleanField(help_text="they have been brought to object storage, and are read from there")
    error = serializers.CharField(help_text="why they could not be brought there, at the last try; empty: nothing")


class OutputKey(serializers.Serializer):
    path = PathField(max_length=4096)


class OutputArchiveQuery(serializers.Serializer):
    path = PathField(default="", allow_blank=True, max_length=4096)
    format = serializers.ChoiceField(["tar", "zip"], default="zip")
