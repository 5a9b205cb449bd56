"""Endpoint that lists the frameworks."""

from rest_framework import serializers

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.pages import ShortQuery, paginate_items
from apps.training.services import frameworks


class FrameworkCluster(serializers.Serializer):
    clusterId = serializers.CharField()
    available = serializers.BooleanField(allow_null=True, help_text="null: its interpreter cannot be asked")
    lacks = serializers.ListField(child=serializers.CharField(), help_text="what is not installed there")
    message = serializers.CharField()
    hint = serializers.CharField(help_text="how it is installed")


class ModelSize(serializers.Serializer):
    min = serializers.IntegerField()
    max = serializers.IntegerField(allow_null=True)


class FrameworkItem(serializers.Serializer):
    value = serializers.CharField()
    aliases = serializers.ListField(child=serializers.CharField())
    label = serializers.CharField()  # type: ignore[assignment]
    description = serializers.CharField()
    parallelism = serializers.ListField(child=serializers.CharField())
    modelSize = ModelSize(help_text="number of parameters it suits")
    options = serializers.DictField(help_text="JSON Schema of distributedConfig.options")
    available = serializers.BooleanField(help_text="false: none of the clusters that you may use can run it")
    clusters = FrameworkCluster(many=True, help_text="of the environments that you may use")


class FrameworksView(APIView):
    @operation("listFrameworks", query=ShortQuery, page=FrameworkItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the frameworks with the options that each takes, and where each is installed."""
        return paginate_items(frameworks.list_frameworks(request.user), query)
