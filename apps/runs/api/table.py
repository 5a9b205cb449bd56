"""Endpoints of the table of runs."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.openapi import KeyField
from apps.runs import table, table_export
from apps.runs.models import MAX_TAG_LENGTH
from apps.runs.search import MAX_READ
from apps.training.api.serializers import TaskBrief
from fermi.runs.fields import MAX_FIELD_LENGTH, FieldGroup, FieldKind
from fermi.runs.query import MAX_LENGTH

KINDS = [(kind.value, kind.value) for kind in FieldKind]
GROUPS = [(group.value, group.value) for group in FieldGroup]
ARCHIVED_CHOICES = [(name, name) for name in table.ARCHIVED]
FORMATS = [(name, name) for name in table_export.FORMATS]


class ColumnField(KeyField):
    """A field as queries name it, without quotes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": MAX_FIELD_LENGTH, **options})


class ColumnsField(serializers.ListField):
    """Fields of which the values are wanted."""

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(child=ColumnField(), max_length=most, help_text="may repeat", **options)


@extend_schema_field({"type": ["string", "number", "null"]})
class CellField(serializers.Field):
    """What a run or a group has in a column."""


class RunSearchQuery(serializers.Serializer):
    query = serializers.CharField(
        max_length=MAX_LENGTH,
        required=False,
        allow_blank=True,
        trim_whitespace=False,  # places in errors count from its first character
        help_text="in the language of queries over runs",
    )
    project = KeyField(required=False, allow_blank=True, help_text="id")
    archived = serializers.ChoiceField(
        ARCHIVED_CHOICES, required=False, help_text="`true`: archived ones alone; `all`: them, too"
    )
    column = ColumnsField(table.MAX_COLUMNS, required=False)


class RunQuery(RunSearchQuery):
    sort = ColumnField(required=False, max_length=MAX_FIELD_LENGTH + 1, help_text="`-` in front: from high to low")
    pageSize = serializers.IntegerField(min_value=1, max_value=200, default=50)
    cursor = serializers.CharField(max_length=2_000, required=False, allow_blank=True)


class RunItem(serializers.Serializer):
    task = TaskBrief()
    tags = serializers.ListField(child=serializers.CharField(max_length=MAX_TAG_LENGTH))
    note = serializers.CharField(help_text=f"its first {table.MAX_NOTE_SHOWN} characters")
    archivedAt = serializers.DateTimeField(allow_null=True)
    values = serializers.DictField(child=CellField(), help_text="by column; without those that the run has not")


class RunsSearched(serializers.Serializer):
    complete = serializers.BooleanField(
        help_text="false: more may match, before the next page or, in an order that no index has, elsewhere"
    )
    tasks = serializers.IntegerField(help_text="that were read and tested for this page")


class RunPage(serializers.Serializer):
    items = RunItem(many=True)
    nextCursor = serializers.CharField(allow_null=True, help_text="null: nothing follows")
    total = serializers.IntegerField(allow_null=True, help_text="null: not known, as too many match")
    totalIsExact = serializers.BooleanField(allow_null=True, help_text="false: there are more than `total`")
    searched = RunsSearched()
    unknownNames = serializers.ListField(
        child=serializers.CharField(),
        help_text="if nothing was found: parameters and curves of the query that none of your runs has",
    )


class RunColumn(serializers.Serializer):
    name = serializers.CharField()
    kind = serializers.ChoiceField(KINDS, help_text="`mixed`: a parameter, which may have numbers and texts")
    locals()["label"] = serializers.CharField()
    choices = serializers.ListField(child=serializers.CharField())
    group = serializers.ChoiceField(GROUPS)
    sortable = serializers.BooleanField()
    higherIsBetter = serializers.BooleanField(allow_null=True, help_text="null: neither higher nor lower is better")


class RunColumnQuery(serializers.Serializer):
    search = serializers.CharField(max_length=100, default="", allow_blank=True)


class RunColumnList(serializers.Serializer):
    items = RunColumn(many=True)


class RunCompletionQuery(serializers.Serializer):
    query = serializers.CharField(max_length=MAX_LENGTH, default="", allow_blank=True, trim_whitespace=False)
    position = serializers.IntegerField(
        min_value=0, max_value=MAX_LENGTH, required=False, help_text="the end by default"
    )


class RunCompletionItem(serializers.Serializer):
    text = serializers.CharField()
    kind = serializers.CharField(help_text="`field`, `parameter`, `metric`, `value` or `keyword`")
    detail = serializers.CharField(help_text="kind of the field's values; may be empty")


class RunCompletion(serializers.Serializer):
    """What may stand instead of the characters from `from` up to `to` (Unicode code points, from 0)."""

    locals()["from"] = serializers.IntegerField()
    to = serializers.IntegerField()
    items = RunCompletionItem(many=True)


class RunGroupQuery(RunSearchQuery):
    by = ColumnsField(table.MAX_GROUPING, allow_empty=False)


class RunFigures(serializers.Serializer):
    """Of the numbers of one column in a group; null: beyond what a number of JSON holds."""

    mean = serializers.FloatField(allow_null=True)
    std = serializers.FloatField(allow_null=True, help_text="standard deviation of all of them, not of a sample")
    min = serializers.FloatField()
    max = serializers.FloatField()
    count = serializers.IntegerField()


class RunGroup(serializers.Serializer):
    key = serializers.DictField(child=CellField(), help_text="by field; null: without a value")
    count = serializers.IntegerField()
    values = serializers.DictField(child=RunFigures(), help_text="by column, of those with numbers")


class RunGroupList(serializers.Serializer):
    items = RunGroup(many=True, help_text=f"the largest first, at most {table.MAX_GROUPS}")
    groups = serializers.IntegerField(help_text="how many there are")
    tasks = serializers.IntegerField(
        help_text=f"that are in groups: the newest that match, at most {table.MAX_GROUPED:,}"
    )
    complete = serializers.BooleanField(help_text="false: more tasks match, or may match")


class RunExportQuery(RunSearchQuery):
    sort = ColumnField(required=False, max_length=MAX_FIELD_LENGTH + 1)
    format = serializers.ChoiceField(FORMATS, default="csv")


class RunsView(APIView):
    @operation("listRuns", scope="runs:read", query=RunQuery, data=RunPage)
    def get(self, request: Request, query: Query) -> Data:
        return table.list_runs(request.user, query)

    get.__doc__ = (
        "List training tasks as runs: those that a query matches, with the values of columns, in any order. A page is "
        f"found by an index, or by reading at most {MAX_READ:,} tasks; then `searched` says whether that was enough."
    )


class RunColumnsView(APIView):
    @operation("listRunColumns", scope="runs:read", query=RunColumnQuery, data=RunColumnList)
    def get(self, request: Request, query: Query) -> Data:
        """List the columns that the table of runs can have: properties of tasks, and parameters and curves of your
        newest tasks."""
        return table.list_columns(request.user, query["search"])


class RunCompletionView(APIView):
    @operation("completeRunQuery", scope="runs:read", query=RunCompletionQuery, data=RunCompletion)
    def get(self, request: Request, query: Query) -> Data:
        """Return what a query over runs can be continued with at a position."""
        text = query["query"]
        return table.complete_text(request.user, text, query.get("position", len(text)))


class RunGroupsView(APIView):
    @operation("listRunGroups", scope="runs:read", query=RunGroupQuery, data=RunGroupList)
    def get(self, request: Request, query: Query) -> Data:
        """List groups of runs with equal values, with figures of the numbers in the columns."""
        return table.group_runs(request.user, query)


class RunExportView(APIView):
    @operation(
        "exportRuns",
        cost=10,
        scope="runs:read",
        query=RunExportQuery,
        media="text/csv",
        other_media="application/vnd.apache.parquet",
    )
    def get(self, request: Request, query: Query) -> Data:
        """Return the runs that a query matches as a file: their ids and names, and the columns. Ends after 100,000
        runs."""
        found = table_export.export_runs(request.user, query)
        response = StreamingHttpResponse(_iterate_in_thread(found.pieces), content_type=found.media_type)
        response["Content-Disposition"] = f'attachment; filename="{found.name}"'
        return response


async def _iterate_in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, each made in a thread, as an event loop must not wait for a database."""
    while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
        yield piece
