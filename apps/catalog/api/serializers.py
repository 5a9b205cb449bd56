"""Serializers of requests and answers about datasets and models."""

from rest_framework import serializers

from apps.catalog.models import VersionStatus
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery


class CatalogQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="what this project may use")
    ordering = OrderingField("name", name="name", createdAt="created_at")


class VersionError(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class DatasetVersionItem(serializers.Serializer):
    id = serializers.CharField()
    datasetId = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(VersionStatus.choices)
    progress = serializers.FloatField(help_text="0 … 1")
    source = serializers.CharField()  # type: ignore[assignment]
    trainTokens = serializers.IntegerField()
    validTokens = serializers.IntegerField()
    sizeBytes = serializers.IntegerField()
    sha256 = serializers.CharField(help_text="of the training data followed by the validation data")
    error = VersionError(allow_null=True)
    createdAt = serializers.DateTimeField()


class DatasetItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    projectId = serializers.CharField(allow_null=True, help_text="null = offered to every project")
    createdAt = serializers.DateTimeField()
    versions = DatasetVersionItem(many=True)


class DatasetCreateRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    projectId = KeyField(source="project_id", required=False, allow_null=True)
    path = serializers.CharField(
        max_length=500,
        help_text="on the server, or files:<path> of the project's: a folder with train.bin and val.bin, or text",
    )
    versionName = serializers.CharField(source="version_name", max_length=60, required=False)


class VersionQuery(PageQuery):
    ordering = OrderingField("-createdAt", name="name", createdAt="created_at")


class VersionCreateRequest(serializers.Serializer):
    path = serializers.CharField(max_length=500)
    name = serializers.CharField(max_length=60, required=False)


class ModelItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    projectId = serializers.CharField(allow_null=True)
    recipe = serializers.CharField()
    parameters = serializers.IntegerField(allow_null=True)
    defaults = serializers.DictField(help_text="hyperparameters")
    createdAt = serializers.DateTimeField()


class ModelCreateRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    projectId = KeyField(source="project_id", required=False, allow_null=True)
    recipe = KeyField(default="gpt")
    parameters = serializers.IntegerField(min_value=1, max_value=10**18, required=False, allow_null=True)
    defaults = serializers.DictField(child=serializers.JSONField(allow_null=True), default=dict)
