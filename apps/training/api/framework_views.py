"""Frameworks: which there are."""

from apps.common.api import APIView, Data, Request, operation
from apps.training.api import framework_forms as forms
from apps.training.services import frameworks


class FrameworksView(APIView):
    @operation("listFrameworks", page=forms.FrameworkItem)
    def get(self, request: Request) -> Data:
        """Every framework there is, with the options it takes, and where it is installed."""
        items = frameworks.listed(request.user)
        return {"items": items, "total": len(items), "page": 1, "pageSize": len(items)}
