"""Endpoints for task templates: use cases that are ready to be submitted."""

from typing import Any

from rest_framework import serializers

from apps.clusters.api.serializers import WarningItem
from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.pages import ShortQuery, paginate_items
from apps.common.texts import get_request_language
from apps.training.presenters import task_presenter
from apps.training.services import templates
from apps.training.services.templates import FilledTemplate, FilledVariant
from fermi.planning import plugins


class TemplateVariant(serializers.Serializer):
    nodes = serializers.IntegerField()
    gpusPerNode = serializers.IntegerField()
    gpuType = serializers.CharField(help_text="empty: any")
    sameZone = serializers.BooleanField()
    framework = serializers.CharField()
    frameworkLabel = serializers.CharField()
    request = serializers.JSONField(help_text="the body of a create, with the environments that there are for it")
    missing = WarningItem(many=True, help_text="what there is not")


class TaskTemplate(serializers.Serializer):
    id = serializers.CharField()
    title = serializers.CharField()
    need = serializers.CharField()
    setting = serializers.CharField(help_text="nodes, GPUs, framework, zones")
    advantages = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField())
    full = TemplateVariant()
    small = TemplateVariant(help_text="of the same kind, and trained in seconds")


class TemplatesView(APIView):
    @operation("listTaskTemplates", scope="any", query=ShortQuery, page=TaskTemplate)
    def get(self, request: Request, query: Query) -> Data:
        """List the task templates as requests, each with those of your environments that it could use, and what is
        missing."""
        return paginate_items([_serialize_template(one) for one in templates.list_templates(request.user)], query)


class TemplateView(APIView):
    @operation("getTaskTemplate", scope="any", data=TaskTemplate)
    def get(self, request: Request, template_id: str) -> Data:
        """Return one task template."""
        return _serialize_template(templates.find_template(request.user, template_id))


def _serialize_template(filled: FilledTemplate) -> dict[str, Any]:
    return {
        "id": filled.template.id,
        **filled.template.localize(get_request_language()),
        "full": _serialize_variant(filled.full),
        "small": _serialize_variant(filled.small),
    }


def _serialize_variant(filled: FilledVariant) -> dict[str, Any]:
    variant = filled.variant
    return {
        "nodes": variant.nodes,
        "gpusPerNode": variant.gpus_per_node,
        "gpuType": variant.gpu_type,
        "sameZone": variant.same_zone,
        "framework": variant.framework,
        "frameworkLabel": plugins.get_framework(variant.framework).info.label,
        "request": filled.request,
        "missing": [task_presenter.serialize_warning(one.code, one.params) for one in filled.missing],
    }
