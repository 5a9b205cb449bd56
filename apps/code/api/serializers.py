"""Serializers of requests and answers about code."""

from rest_framework import serializers

from apps.code.models import FetchStatus
from apps.common.openapi import KeyField
from apps.common.pages import PageQuery


class ProjectQuery(serializers.Serializer):
    project = KeyField(required=False, help_text="whose it is to be; by default the only one that you may change")


class SnapshotQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True)


class PathQuery(serializers.Serializer):
    path = serializers.CharField(max_length=1024, default="", allow_blank=True)


class FileQuery(serializers.Serializer):
    path = serializers.CharField(max_length=1024)


class DiffQuery(serializers.Serializer):
    before = serializers.CharField(max_length=64, help_text="the snapshot that this one is compared with")


class CodeOrigin(serializers.Serializer):
    kind = serializers.CharField(help_text="upload, git or environment")
    url = serializers.CharField()
    revision = serializers.CharField()
    commit = serializers.CharField()
    branch = serializers.CharField()
    dirty = serializers.BooleanField(help_text="it differed from its commit")
    environment = serializers.CharField()
    path = serializers.CharField()


class SnapshotItem(serializers.Serializer):
    id = serializers.CharField(help_text="the SHA-256 of its manifest")
    projectId = serializers.CharField()
    files = serializers.IntegerField()
    sizeBytes = serializers.IntegerField()
    origin = CodeOrigin()
    hasPatch = serializers.BooleanField(help_text="it says how it differed from its commit")
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()


class SnapshotPatch(serializers.Serializer):
    patch = serializers.CharField()


class SnapshotMissing(serializers.Serializer):
    id = serializers.CharField()
    projectId = serializers.CharField()
    finished = serializers.BooleanField()
    missing = serializers.ListField(child=serializers.CharField(), help_text="SHA-256 of contents to be sent")
    missingBytes = serializers.IntegerField()


class SnapshotStored(serializers.Serializer):
    id = serializers.CharField()
    stored = serializers.IntegerField()


class OriginRequest(serializers.Serializer):
    url = serializers.CharField(max_length=500, allow_blank=True, required=False)
    commit = serializers.CharField(max_length=64, allow_blank=True, required=False)
    branch = serializers.CharField(max_length=200, allow_blank=True, required=False)
    dirty = serializers.BooleanField(required=False)


class SnapshotFinishRequest(serializers.Serializer):
    projectId = KeyField(source="project_id", required=False, allow_null=True)
    origin = OriginRequest(required=False)
    patch = serializers.CharField(
        max_length=262_144, allow_blank=True, required=False, trim_whitespace=False, help_text="`git diff HEAD`"
    )


class TreeEntry(serializers.Serializer):
    name = serializers.CharField()
    path = serializers.CharField()
    kind = serializers.ChoiceField(["folder", "file", "link"])
    sizeBytes = serializers.IntegerField()
    files = serializers.IntegerField()
    link = serializers.CharField()
    executable = serializers.BooleanField()


class SnapshotTree(serializers.Serializer):
    items = TreeEntry(many=True)


class SnapshotFile(serializers.Serializer):
    path = serializers.CharField()
    sizeBytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    link = serializers.CharField()
    text = serializers.CharField(allow_null=True, help_text="null: it is not text")
    cut = serializers.BooleanField()


class FileDifference(serializers.Serializer):
    path = serializers.CharField()
    change = serializers.ChoiceField(["added", "removed", "changed"])
    diff = serializers.CharField()
    binary = serializers.BooleanField()
    cut = serializers.BooleanField()


class SnapshotDiff(serializers.Serializer):
    before = serializers.CharField()
    after = serializers.CharField()
    items = FileDifference(many=True)


class GitSource(serializers.Serializer):
    url = serializers.CharField(max_length=500)
    revision = serializers.CharField(max_length=200, default="HEAD")
    secret = serializers.CharField(max_length=63, required=False, allow_null=True)


class FetchRequest(serializers.Serializer):
    projectId = KeyField(source="project_id", required=False, allow_null=True)
    git = GitSource()


class CodeLimits(serializers.Serializer):
    files = serializers.IntegerField()
    fileMb = serializers.IntegerField(help_text="of one file")
    totalMb = serializers.IntegerField()


class FetchProblem(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class FetchItem(serializers.Serializer):
    id = serializers.CharField()
    projectId = serializers.CharField()
    status = serializers.ChoiceField(FetchStatus.choices)
    snapshotId = serializers.CharField(allow_null=True)
    error = FetchProblem(allow_null=True)
    createdAt = serializers.DateTimeField()
