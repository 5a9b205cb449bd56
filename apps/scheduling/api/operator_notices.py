"""Endpoint of findings for the platform's operators."""

from apps.clusters import selectors as clusters
from apps.clusters.api.serializers import ClusterReport
from apps.common.api import APIView, Data, Request, operation
from apps.scheduling import selectors


class NoticesView(APIView):
    @operation("listNotices", scope="notices:read", data=ClusterReport)
    def get(self, request: Request) -> Data:
        """List findings about the platform itself (administrators and operators; maintainers see those about their
        projects' budgets)."""
        return clusters.serialize_report(
            [*clusters.list_operator_findings(request.user), *selectors.list_notices(request.user)]
        )
