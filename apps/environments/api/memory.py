"""Endpoints of memory use: which processes hold memory, ending a kernel, notifying the owner."""

from rest_framework import serializers

from apps.accounts import access
from apps.accounts.models import Role
from apps.clusters.models import DevEnvironment
from apps.common.api import APIView, Data, Request, operation
from apps.common.texts import serialize_error
from apps.environments import memory
from apps.environments.api.packages import PackagesReason

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
    """Memory use of an environment. `reason`: why nothing is known."""

    looking = serializers.BooleanField(help_text="it is being looked at; what is told here is what was known before")
    reason = PackagesReason(allow_null=True)


class MemoryView(APIView):
    @operation("getEnvironmentMemory", scope="environments:read", data=EnvironmentMemory)
    def get(self, request: Request, environment_id: str) -> Data:
        """Return which processes hold memory in the environment, and how much of its GPUs' memory is free. Returns at
        once what is known; `looking` is true while the environment is being asked for the rest."""
        environment = access.get_object(DevEnvironment.objects.all(), request.user, environment_id)
        found = memory.list_memory_holders([environment.pk], request.user)
        shown = found[0] if found else memory.build_empty_entry(environment.pk, environment.name)
        return {**shown, "reason": serialize_error(shown["error"])}


class KernelEndView(APIView):
    @operation("endKernel", scope="environments:open")
    def post(self, request: Request, environment_id: str, kernel_id: str) -> None:
        """End a kernel in one of your own environments; what it has in memory is lost (member)."""
        memory.end_kernel(request.user, _get_environment(request, environment_id), kernel_id)


class AskOwnerView(APIView):
    @operation("askOwner", scope="environments:write")
    def post(self, request: Request, environment_id: str) -> None:
        """Notify the environment's owner that you would like to train there, and what holds its memory (member)."""
        memory.ask_owner(request.user, _get_environment(request, environment_id))


def _get_environment(request: Request, environment_id: str) -> DevEnvironment:
    rows = DevEnvironment.objects.select_related("cluster", "owner", "zone")
    return access.get_object(rows, request.user, environment_id, Role.MEMBER)
