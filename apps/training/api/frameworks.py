"""Endpoint that lists the frameworks."""

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.pages import ShortQuery, paginate_items
from apps.training.api import framework_forms as forms
from apps.training.services import frameworks


class FrameworksView(APIView):
    @operation("listFrameworks", query=ShortQuery, page=forms.FrameworkItem)
    def get(self, request: Request, query: Query) -> Data:
        """Every framework there is, with the options it takes, and where it is installed."""
        return paginate_items(frameworks.list_frameworks(request.user), query)
