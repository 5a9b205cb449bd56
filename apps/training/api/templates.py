"""Endpoints for use cases that are ready to be submitted."""

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.pages import ShortQuery, paginate_items
from apps.training.api import template_forms as forms
from apps.training.services import templates


class TemplatesView(APIView):
    @operation("listTaskTemplates", query=ShortQuery, page=forms.TaskTemplate)
    def get(self, request: Request, query: Query) -> Data:
        """Use cases as requests, with those of your environments that they could take, and what is missing."""
        return paginate_items(templates.list_templates(request.user), query)


class TemplateView(APIView):
    @operation("getTaskTemplate", data=forms.TaskTemplate)
    def get(self, request: Request, template_id: str) -> Data:
        """One use case."""
        return templates.find_template(request.user, template_id)
