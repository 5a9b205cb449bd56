"""Use cases that are ready to be sent."""

from apps.common.api import APIView, Data, Request, operation
from apps.training.api import template_forms as forms
from apps.training.services import templates


class TemplatesView(APIView):
    @operation("listTaskTemplates", page=forms.TaskTemplate)
    def get(self, request: Request) -> Data:
        """Use cases as requests, with those of your environments that they could take, and what is missing."""
        items = templates.listed(request.user)
        return {"items": items, "total": len(items), "page": 1, "pageSize": len(items)}


class TemplateView(APIView):
    @operation("getTaskTemplate", data=forms.TaskTemplate)
    def get(self, request: Request, template_id: str) -> Data:
        """One use case."""
        return templates.find(request.user, template_id)
