"""Endpoints for saved views of the table of runs."""

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery, paginate_rows
from apps.runs import selectors
from apps.runs.models import MAX_COLUMN_LENGTH, MAX_QUERY_LENGTH, MAX_VIEW_NAME_LENGTH
from apps.runs.services import views

MAX_COLUMNS, MAX_GROUPS, MAX_PINNED = 40, 3, 20


class ColumnField(KeyField):
    """The name of a column, such as `param.lr` or `metric.val_loss.best`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": MAX_COLUMN_LENGTH, **options})


class RunViewQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="id: only its views, without your own")
    ordering = OrderingField("name", name="name")


class RunViewChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=MAX_VIEW_NAME_LENGTH)
    query = serializers.CharField(max_length=MAX_QUERY_LENGTH, allow_blank=True, required=False)
    columns = serializers.ListField(child=ColumnField(), max_length=MAX_COLUMNS, required=False)
    sort = serializers.CharField(
        max_length=MAX_COLUMN_LENGTH + 1, allow_blank=True, required=False, help_text="a column; with - descending"
    )
    groupBy = serializers.ListField(source="group_by", child=ColumnField(), max_length=MAX_GROUPS, required=False)
    pinned = serializers.ListField(child=KeyField(), max_length=MAX_PINNED, required=False, help_text="ids of tasks")
    baseline = KeyField(
        source="baseline_id", allow_null=True, required=False, help_text="the task that others are compared with"
    )


class RunViewRequest(RunViewChangeRequest):
    projectId = KeyField(
        source="project", allow_null=True, required=False, help_text="for all of its members; null: your own"
    )


class RunViewItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField(allow_null=True, help_text="null: your own")
    query = serializers.CharField()
    columns = serializers.ListField(child=serializers.CharField())
    sort = serializers.CharField()
    groupBy = serializers.ListField(child=serializers.CharField())
    pinned = serializers.ListField(child=serializers.CharField(), help_text="of those the ones that you may see")
    baseline = serializers.CharField(allow_null=True)
    mayChange = serializers.BooleanField()


class RunViewsView(APIView):
    @operation("listRunViews", scope="account:read", query=RunViewQuery, page=RunViewItem)
    def get(self, request: Request, query: Query) -> Data:
        """List your saved views of the table of runs and those of your projects."""
        rows = selectors.query_views(request.user).filter(Q(name__icontains=query["search"]))
        if query.get("project"):
            rows = rows.filter(project=query["project"])
        page = paginate_rows(rows, query)
        return {**page, "items": selectors.serialize_views(request.user, page["items"])}

    @operation("createRunView", scope="account:write", body=RunViewRequest, data=RunViewItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Save a view of the table of runs: for yourself, or for a project of which you are a member."""
        return selectors.serialize_views(request.user, [views.create_view(request.user, body)])[0]


class RunViewView(APIView):
    @operation("changeRunView", scope="account:write", body=RunViewChangeRequest, partial=True, data=RunViewItem)
    def patch(self, request: Request, view_id: str, body: Body) -> Data:
        """Change one of your views, or one of a project of which you are a member."""
        return selectors.serialize_views(request.user, [views.change_view(request.user, view_id, body)])[0]

    @operation("deleteRunView", scope="account:write")
    def delete(self, request: Request, view_id: str) -> None:
        """Delete one of your views, or one of a project of which you are a member. The runs stay as they are."""
        views.delete_view(request.user, view_id)
