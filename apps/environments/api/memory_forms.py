"""Shapes of answers about who holds memory in environments."""

from rest_framework import serializers

from apps.environments import memory
from apps.environments.api.packages_forms import PackagesReason

HOLDERS = [(kind, kind) for kind in memory.HOLDERS]


class MemoryHolder(serializers.Serializer):
    kind = serializers.ChoiceField(HOLDERS)
    id = serializers.CharField(help_text="of the kernel, or the process id")
    name = serializers.CharField(help_text="the notebook, or how its command line begins")
    owner = serializers.CharField(allow_null=True, help_text="of the environment")
    since = serializers.FloatField(allow_null=True, help_text="unix seconds")
    rssBytes = serializers.IntegerField()
    gpuBytes = serializers.IntegerField()
    mine = serializers.BooleanField(help_text="you may end it")


class GpuMemory(serializers.Serializer):
    index = serializers.IntegerField()
    name = serializers.CharField(help_text="may be empty")
    totalBytes = serializers.IntegerField()
    freeBytes = serializers.IntegerField()


class EnvironmentInUse(serializers.Serializer):
    environmentId = serializers.CharField()
    environment = serializers.CharField()
    processes = MemoryHolder(many=True)
    gpus = GpuMemory(many=True, help_text="what training would have beside them; empty: not known")


class EnvironmentMemory(EnvironmentInUse):
    """`reason`: why nothing is known."""

    looking = serializers.BooleanField(help_text="it is being looked at; what is told here is what was known before")
    reason = PackagesReason(allow_null=True)
