"""Reads lists of people and groups, by the filters that directories use."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Q, QuerySet
from scim2_models import SearchRequest
from scim2_models.path import CompareOperator, Comparison

from apps.common.errors import ApiError
from apps.directory.models import Directory, DirectoryUser, Group
from apps.directory.scim.resources import MAX_MEMBERS, MAX_PAGE
from apps.identity.claims import is_storable_text

PERSON_FILTERS: Mapping[str, str] = {
    "id": "pk",
    "username": "user_name__iexact",
    "externalid": "external_id",
}
GROUP_FILTERS: Mapping[str, str] = {
    "id": "pk",
    "displayname": "display_name__iexact",
    "externalid": "external_id",
}
MAX_START = 10_000_000


def list_people(directory: Directory, query: SearchRequest[Any]) -> tuple[list[DirectoryUser], int]:
    """Return a page of the directory's people, and how many there are. Raises ApiError 400 for another filter."""
    rows = DirectoryUser.objects.filter(directory=directory, deleted_at=None, user__service_project=None)
    rows = rows.filter(build_condition(query, PERSON_FILTERS)).select_related("user").order_by("created_at", "pk")
    return _cut_page(rows, query), rows.count()


def list_groups(directory: Directory, query: SearchRequest[Any], *, members: bool) -> tuple[list[Group], int]:
    """Return a page of the directory's groups, and how many there are. With `members` a page ends before all members
    together exceed MAX_MEMBERS. Raises ApiError 400 for another filter."""
    rows = Group.objects.filter(directory=directory).filter(build_condition(query, GROUP_FILTERS))
    page = _cut_page(rows.order_by("created_at", "pk"), query)
    if members and len(page) > 1:
        keys = [row.pk for row in page]
        counts = dict(Group.objects.filter(pk__in=keys).annotate(n=Count("memberships")).values_list("pk", "n"))
        total = 0
        for index, row in enumerate(page):
            total += counts.get(row.pk, 0)
            if index and total > MAX_MEMBERS:
                page = page[:index]
                break
    return page, rows.count()


def build_condition(query: SearchRequest[Any], filters: Mapping[str, str]) -> Q:
    """Return the condition of a filter `<attribute> eq "<text>"`; without a filter, one that all rows meet. Raises
    ApiError 400 for any other: a directory that got all people in place of one would go on with the wrong one."""
    if query.filter is None:
        return Q()
    node = query.filter.ast
    if isinstance(node, Comparison) and node.op == CompareOperator.eq and isinstance(node.value, str):
        name = str(node.attr_path).lower().rpartition(":")[2]
        if name in filters and is_storable_text(node.value):
            return Q(**{filters[name]: node.value}) if node.value else Q(pk__in=[])
    raise ApiError(400, "SCIM_FILTER_UNSUPPORTED", "filter", filter=str(query.filter)[:200], allowed=", ".join(filters))


def _cut_page(rows: QuerySet[Any, Any], query: SearchRequest[Any]) -> list[Any]:
    start = min(max(query.start_index or 1, 1), MAX_START)
    count = MAX_PAGE if query.count is None else min(max(query.count, 0), MAX_PAGE)
    return list(rows[start - 1 : start - 1 + count])
