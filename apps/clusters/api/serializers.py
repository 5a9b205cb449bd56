"""Serializers of requests and answers about clusters and environments."""

from django.db.models import Case, F, When
from rest_framework import serializers

from apps.clusters.models import EnvironmentKind, EnvironmentStatus
from apps.common.openapi import AddressField, KeyField
from apps.common.pages import OrderingField, PageQuery
from fermi.engines.check_results import CheckLevel

KINDS = EnvironmentKind.choices
STATUSES = EnvironmentStatus.choices
LEVELS = [level.value for level in CheckLevel]
_RUNNING_SINCE = Case(When(status=EnvironmentStatus.RUNNING, then=F("started_at")))


class EnvironmentQuery(PageQuery):
    zone = serializers.ListField(
        child=KeyField(allow_blank=True), max_length=100, required=False, help_text="id or name; may repeat"
    )
    status = serializers.ListField(child=serializers.ChoiceField(STATUSES), max_length=100, required=False)
    gpuType = serializers.ListField(child=KeyField(allow_blank=True), max_length=100, required=False)
    kind = serializers.ListField(child=serializers.ChoiceField(KINDS), max_length=100, required=False)
    minGpus = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False)
    cluster = KeyField(required=False, allow_blank=True)
    project = KeyField(required=False, allow_blank=True)
    ordering = OrderingField(
        "name",
        name="name",
        zone="zone__name",
        status="status",
        gpuCount="gpu_count",
        gpuType="gpu_type",
        cpuCores="cpu_cores",
        memoryGb="memory_gb",
        createdAt="created_at",
        uptime=_RUNNING_SINCE.desc(nulls_last=True),
    )


class ZoneRef(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class NotSelectableReason(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()


class NetworkFacts(serializers.Serializer):
    """Facts about an environment's network. A field that is left out is unknown."""

    interface = serializers.RegexField(
        r"^[A-Za-z0-9_.@-]{1,15}$", required=False, help_text="by which the other nodes reach it, such as eth0"
    )
    infiniband = serializers.ListField(
        child=serializers.RegexField(r"^[A-Za-z0-9_.-]{1,63}(:[0-9]{1,3})?$"),
        max_length=64,
        required=False,
        help_text="InfiniBand or RoCE devices, such as mlx5_0; empty = it has none",
    )


class NetworkRequest(NetworkFacts):
    """Facts about an environment's network; they replace what was stored before."""


class KnownEnvironment(serializers.Serializer):
    """What is stored about any environment; `apps.environments` adds the state of those that the platform manages."""

    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    owner = serializers.CharField(allow_null=True)
    clusterId = serializers.CharField()
    backend = serializers.CharField()
    zone = ZoneRef()
    kind = serializers.ChoiceField(KINDS)
    status = serializers.ChoiceField(STATUSES)
    cordoned = serializers.BooleanField()
    selectable = serializers.BooleanField(help_text="running and not cordoned; a held one is: the task waits")
    notSelectableReason = NotSelectableReason(allow_null=True)
    image = serializers.CharField()
    stack = serializers.CharField()
    gpuType = serializers.CharField()
    gpuCount = serializers.IntegerField()
    emulated = serializers.BooleanField(help_text="CPU processes stand in for the GPUs")
    cpuCores = serializers.IntegerField()
    memoryGb = serializers.IntegerField()
    host = serializers.CharField()
    ip = serializers.CharField(allow_null=True)
    versions = serializers.DictField(child=serializers.CharField())
    network = NetworkFacts()
    startedAt = serializers.DateTimeField(allow_null=True)
    uptimeSeconds = serializers.IntegerField(allow_null=True)
    heldBy = serializers.CharField(allow_null=True, help_text="id of the task that holds it")
    shared = serializers.BooleanField(help_text="tasks of any project may run there")
    warm = serializers.BooleanField(
        allow_null=True, help_text="a process stands by in it with the training stack imported; null: as its project"
    )
    labels = serializers.DictField(child=serializers.CharField())


class EnvironmentChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    zone = serializers.CharField(max_length=100, help_text="id or name; a new name makes a new zone")
    kind = serializers.ChoiceField(KINDS, required=False)
    status = serializers.ChoiceField(STATUSES, required=False)
    cordoned = serializers.BooleanField(required=False)
    image = serializers.CharField(max_length=200, allow_blank=True, required=False)
    stack = serializers.CharField(max_length=60, allow_blank=True, required=False)
    gpuType = serializers.CharField(source="gpu_type", max_length=40, allow_blank=True, required=False)
    gpuCount = serializers.IntegerField(source="gpu_count", min_value=0, max_value=1024, required=False)
    emulated = serializers.BooleanField(required=False)
    cpuCores = serializers.IntegerField(source="cpu_cores", min_value=1, max_value=100_000, required=False)
    memoryGb = serializers.IntegerField(source="memory_gb", min_value=1, max_value=1_000_000, required=False)
    host = serializers.CharField(max_length=200, allow_blank=True, required=False)
    ip = AddressField(allow_null=True, required=False)
    versions = serializers.DictField(child=serializers.CharField(max_length=60), required=False)
    engine = serializers.DictField(required=False, help_text="what its backend understands (administrator)")
    network = NetworkRequest(required=False)
    shared = serializers.BooleanField(required=False, help_text="tasks of any project may run there")
    warm = serializers.BooleanField(
        allow_null=True, required=False,
        help_text="a process stands by in it with the training stack imported; null: as its project (its owner, too)",
    )  # fmt: skip
    labels = serializers.DictField(child=serializers.CharField(max_length=100), required=False)


class EnvironmentRegisterRequest(EnvironmentChangeRequest):
    projectId = KeyField(source="project_id")
    clusterId = KeyField(source="cluster_id")


class SummaryRequest(serializers.Serializer):
    environmentIds = serializers.ListField(source="environment_ids", child=KeyField(), max_length=1024)
    masterNode = KeyField(source="master", required=False, allow_null=True, default=None)


class WarningItem(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class EnvironmentSummary(serializers.Serializer):
    nodeCount = serializers.IntegerField()
    totalGpus = serializers.IntegerField()
    worldSize = serializers.IntegerField(help_text="number of processes: one per GPU, one on a node without")
    totalCpus = serializers.IntegerField()
    totalMemoryGb = serializers.IntegerField()
    gpuTypes = serializers.ListField(child=serializers.CharField())
    zones = serializers.ListField(child=serializers.CharField())
    crossZone = serializers.BooleanField()
    isDistributed = serializers.BooleanField()
    warnings = WarningItem(many=True)


class ZoneQuery(PageQuery):
    ordering = OrderingField("name", name="name", gpuCount="gpuCount", environmentCount="environmentCount")


class ZoneItem(ZoneRef):
    environmentCount = serializers.IntegerField()
    gpuCount = serializers.IntegerField()


class ClusterQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at")


class ClusterItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    backend = serializers.CharField()
    connection = serializers.DictField(allow_null=True, help_text="for the administrator")


class ClusterChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    connection = serializers.DictField(required=False, help_text="its schema depends on the backend")


class ClusterCreateRequest(ClusterChangeRequest):
    backend = serializers.CharField(max_length=20)
    connection = serializers.DictField(default=dict, help_text="its schema depends on the backend")


class ClusterFinding(serializers.Serializer):
    level = serializers.ChoiceField(LEVELS)
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()
    remedy = serializers.CharField(help_text="what to apply or run, as it stands")


class ClusterReport(serializers.Serializer):
    fit = serializers.BooleanField(help_text="nothing fails")
    findings = ClusterFinding(many=True)
