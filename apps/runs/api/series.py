"""Endpoints for the comparison of runs: their curves on one axis, and what they can be compared by."""

import math
from typing import Any

from rest_framework import serializers

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.openapi import KeyField
from apps.runs import comparison, series
from apps.runs.axes import AXES, STEP
from apps.training.public import TaskState
from fermi.metrics.records import MEDIA_KINDS

MAX_PLACE = 1e18
STATES = [(state.value, state.value) for state in TaskState]
KINDS = [(kind, kind) for kind in MEDIA_KINDS]


class PlaceField(serializers.FloatField):
    """A place on an axis."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=-MAX_PLACE, max_value=MAX_PLACE, **options)

    def to_internal_value(self, data: Any) -> float:
        found = super().to_internal_value(data)
        if not math.isfinite(found):
            self.fail("invalid")
        return float(found)


class RunsQuery(serializers.Serializer):
    task = serializers.ListField(
        child=KeyField(), min_length=1, max_length=series.MAX_TASKS, help_text="ids; may repeat"
    )


class SeriesQuery(RunsQuery):
    metric = serializers.ListField(
        child=KeyField(max_length=200),
        min_length=1,
        max_length=series.MAX_METRICS,
        help_text="names; may repeat. `machine.gpu` and so on: what the run's machines used",
    )
    axis = serializers.ChoiceField([(axis, axis) for axis in AXES], default=STEP)
    points = serializers.IntegerField(
        min_value=series.MIN_POINTS, max_value=series.MAX_POINTS, default=series.DEFAULT_POINTS,
        help_text="the most of each curve; fewer where there are many curves",
    )  # fmt: skip
    to = PlaceField(required=False, help_text="on the axis; its end by default")
    smooth = serializers.FloatField(
        min_value=0, max_value=0.9999, default=0.0, help_text="weight of the moving average; 0: none"
    )
    groupBy = KeyField(
        max_length=200, required=False, allow_blank=True, help_text="name of a parameter: one band for each value"
    )
    locals()["from"] = PlaceField(required=False, help_text="on the axis; its beginning by default")


def _build_numbers(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.FloatField(), **options)


class RunCurve(serializers.Serializer):
    """A metric of a run: one line over all of its attempts. Steps that were done again count once."""

    taskId = serializers.CharField()
    metric = serializers.CharField()
    source = serializers.CharField(help_text="who reported it")  # type: ignore[assignment]
    x = _build_numbers()
    y = _build_numbers(help_text="means, where several points lie in one place")
    low = _build_numbers(allow_null=True, help_text="the lowest of each place; null: one point in each")
    high = _build_numbers(allow_null=True, help_text="the highest of each place; null: one point in each")
    count = serializers.IntegerField(help_text="of points")
    smoothed = _build_numbers(allow_null=True, help_text="`y` smoothed; null: not asked for")
    last = serializers.FloatField(allow_null=True, help_text="the newest value of the whole curve")
    lastStep = serializers.IntegerField(allow_null=True)
    restarts = _build_numbers(help_text="where attempts after the first began, on axes of steps")
    notFinite = serializers.IntegerField(help_text="points that were NaN or infinite")
    complete = serializers.BooleanField(help_text="false: the same request has more of it next time")


class RunBand(serializers.Serializer):
    """Runs of one group as one line with its spread."""

    metric = serializers.CharField()
    group = serializers.CharField(help_text="value of the parameter; empty: they have none")
    taskIds = serializers.ListField(child=serializers.CharField())
    x = _build_numbers()
    mean = _build_numbers()
    low = _build_numbers()
    high = _build_numbers()
    lowQuartile = _build_numbers()
    highQuartile = _build_numbers()
    count = serializers.ListField(child=serializers.IntegerField(), help_text="runs that have a value at each place")


class AbsentSeries(serializers.Serializer):
    taskId = serializers.CharField()
    metric = serializers.CharField(help_text="empty: none of the run's curves has a place on the axis")
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class RunSeries(serializers.Serializer):
    axis = serializers.ChoiceField([(axis, axis) for axis in AXES])
    to = serializers.FloatField(allow_null=True)
    points = serializers.IntegerField(help_text="the most of each curve in this answer")
    complete = serializers.BooleanField(help_text="false: not all points are read yet; ask again")
    series = RunCurve(many=True)
    bands = RunBand(many=True)
    absent = AbsentSeries(many=True)
    locals()["from"] = serializers.FloatField(allow_null=True)


class ComparedRun(serializers.Serializer):
    taskId = serializers.CharField()
    taskName = serializers.CharField()
    status = serializers.ChoiceField(STATES)
    framework = serializers.CharField()
    createdAt = serializers.DateTimeField()
    startedAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)
    parameters = serializers.DictField(child=serializers.CharField())


class ComparedMetric(serializers.Serializer):
    name = serializers.CharField()
    runs = serializers.IntegerField(help_text="that have it")


class ComparedParameter(serializers.Serializer):
    name = serializers.CharField()
    differs = serializers.BooleanField(help_text="between the runs")


class ComparedMedia(serializers.Serializer):
    kind = serializers.ChoiceField(KINDS)
    name = serializers.CharField()
    runs = serializers.IntegerField(help_text="that have it")


class RunComparison(serializers.Serializer):
    complete = serializers.BooleanField(help_text="false: not all points are read yet; ask again")
    runs = ComparedRun(many=True)
    metrics = ComparedMetric(many=True)
    parameters = ComparedParameter(many=True)
    media = ComparedMedia(many=True)
    machine = serializers.ListField(
        child=serializers.CharField(), help_text="metrics of what machines used, where they were measured"
    )


class RunSeriesView(APIView):
    @operation("getRunSeries", scope="runs:read", query=SeriesQuery, data=RunSeries)
    def get(self, request: Request, query: Query) -> Data:
        """Return metrics of up to 50 runs on one axis, with at most `points` points of each: where several lie in one
        place, their mean, lowest and highest value."""
        return series.read_series(series.find_tasks(request.user, query["task"]), query)


class RunComparisonView(APIView):
    @operation("getRunComparison", scope="runs:read", query=RunsQuery, data=RunComparison)
    def get(self, request: Request, query: Query) -> Data:
        """Return what up to 50 runs can be compared by: metrics, parameters (those that differ first) and media."""
        return comparison.describe_runs(series.find_tasks(request.user, query["task"]))
