"""Serializers of templates of requests."""

from rest_framework import serializers

from apps.clusters.api.serializers import WarningItem


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
