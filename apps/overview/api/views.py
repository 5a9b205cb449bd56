"""Endpoints of the overview, its alerts and its projects."""

from apps.accounts.api.serializers import ProjectQuery
from apps.accounts.selectors import list_projects
from apps.common.api import APIView, Data, Query, Request, operation, paginate_rows
from apps.common.clock import now
from apps.overview import projects, summary
from apps.overview.api import serializers
from apps.overview.attention import pages
from apps.overview.scope import Scope


class OverviewView(APIView):
    @operation("getOverview", scope="usage:read", query=serializers.OverviewQuery, data=serializers.Overview)
    def get(self, request: Request, query: Query) -> Data:
        """Return the state of machines, queue, failures and goodput: of everything for administrators, else of your
        projects and the environments that you may use."""
        return summary.build_overview(Scope.from_query(request.user, query), now())


class AttentionView(APIView):
    @operation("listAttention", scope="usage:read", query=serializers.AttentionQuery, data=serializers.Attention)
    def get(self, request: Request, query: Query) -> Data:
        """List what needs somebody's attention now, counted by kind, most severe first, each with the page on which to
        act."""
        return pages.list_alerts(Scope.from_query(request.user, query), query, now())


class ProjectsView(APIView):
    @operation(
        "listProjectSummaries",
        scope="projects:read",
        query=ProjectQuery,
        page=serializers.ProjectSummary,
    )
    def get(self, request: Request, query: Query) -> Data:
        """List the projects in which you have a role with what is in each: members, service accounts and running
        tasks; all projects for an administrator."""
        page = paginate_rows(list_projects(request.user).filter(name__icontains=query["search"]), query)
        return {**page, "items": projects.summarize_projects(page["items"])}
