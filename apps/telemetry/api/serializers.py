"""Serializers of the telemetry of machines and ranks."""

from typing import Any

from rest_framework import serializers

from apps.common.openapi import MAX_INT4, DateTime
from apps.telemetry.presenters import DEFAULT_POINTS, MAX_POINTS, MIN_POINTS
from fermi.telemetry.metrics import METRICS

METRIC_CHOICES = [(name, name) for name in METRICS]


def _make_number_field() -> serializers.Field[Any, Any, Any, Any]:
    return serializers.IntegerField(min_value=0, max_value=MAX_INT4)


class TelemetryQuery(serializers.Serializer):
    metric = serializers.ListField(
        child=serializers.ChoiceField(METRIC_CHOICES), max_length=len(METRIC_CHOICES), required=False,
        help_text="names of metrics; without any, those of a first look",
    )  # fmt: skip
    to = DateTime(required=False, help_text="now, or the task's end, by default")
    points = serializers.IntegerField(
        min_value=MIN_POINTS, max_value=MAX_POINTS, default=DEFAULT_POINTS,
        help_text="the most values of each series; fewer where there are very many series",
    )  # fmt: skip
    locals()["from"] = DateTime(required=False, help_text="the task's beginning, or an hour before `to`, by default")


class TaskTelemetryQuery(TelemetryQuery):
    node = serializers.ListField(child=_make_number_field(), max_length=1024, required=False, help_text="node ranks")
    rank = serializers.ListField(child=_make_number_field(), max_length=1024, required=False, help_text="ranks")


class TelemetrySeries(serializers.Serializer):
    """Values at `from`, `from` + `stepSeconds`, and so on; null where nothing is known."""

    metric = serializers.ChoiceField(METRIC_CHOICES)
    unit = serializers.CharField()
    index = serializers.CharField(help_text="GPU, interface, mount point or rank; empty for the node's own")
    node = serializers.IntegerField(allow_null=True, help_text="node rank; null: all nodes are this one machine")
    rank = serializers.IntegerField(allow_null=True, help_text="whose it is, or that has the GPU")
    values = serializers.ListField(child=serializers.FloatField(allow_null=True))
    most = serializers.ListField(
        child=serializers.FloatField(allow_null=True), allow_null=True,
        help_text="the largest within each step, where `values` has means; null: they are the same",
    )  # fmt: skip


class Telemetry(serializers.Serializer):
    to = serializers.DateTimeField()
    stepSeconds = serializers.IntegerField()
    emulated = serializers.BooleanField(help_text="GPUs are stood in for by what processes use of the processors")
    series = TelemetrySeries(many=True)
    locals()["from"] = serializers.DateTimeField()


class TelemetryMark(serializers.Serializer):
    at = serializers.DateTimeField()
    code = serializers.ChoiceField([(code, code) for code in ("ATTEMPT_STARTED", "ATTEMPT_ENDED")])
    attempt = serializers.IntegerField()
    outcome = serializers.CharField(help_text="why it ended; empty: it did not, or is not known yet")
    failed = serializers.BooleanField(help_text="by something that nobody asked for")


class TaskTelemetry(Telemetry):
    marks = TelemetryMark(many=True)


class TelemetryTask(serializers.Serializer):
    """A task that used the machine."""

    id = serializers.CharField(allow_null=True, help_text="null: a task that you may not see, or that was deleted")
    name = serializers.CharField(help_text="empty: a task that you may not see")
    to = serializers.DateTimeField(allow_null=True, help_text="null: it has it now")
    locals()["from"] = serializers.DateTimeField()


class MachineTelemetry(Telemetry):
    tasks = TelemetryTask(many=True)


class RankUse(serializers.Serializer):
    rank = serializers.IntegerField()
    gpu = serializers.FloatField(allow_null=True, help_text="% of the time")
    gpuMemory = serializers.FloatField(allow_null=True, help_text="bytes in use on its GPU")
    gpuMemoryTotal = serializers.FloatField(allow_null=True)
    power = serializers.FloatField(allow_null=True, help_text="W")
    temperature = serializers.FloatField(allow_null=True, help_text="°C")
    cpu = serializers.FloatField(allow_null=True, help_text="% of one processor")
    memory = serializers.FloatField(allow_null=True, help_text="bytes, resident")


class TaskUse(serializers.Serializer):
    taskId = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="of the newest values; null: there are none")
    emulated = serializers.BooleanField()
    ranks = RankUse(many=True, help_text="those of which something was measured within a minute and a half")
