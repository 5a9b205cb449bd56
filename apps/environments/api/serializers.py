"""Serializers of requests and answers about environments and their templates."""

from typing import Any

from rest_framework import serializers

from apps.clusters.api.serializers import KINDS, KnownEnvironment, ZoneRef
from apps.clusters.models import EnvironmentKind
from apps.common.openapi import MAX_INT4, KeyField
from apps.common.pages import OrderingField, PageQuery
from apps.environments import standby
from apps.environments.states import DesiredState, EnvironmentAction, EnvironmentState
from apps.environments.states.deadlines import MAX_KEEP_HOURS

STATES, DESIRED_STATES, ACTIONS = (
    [(one.value, one.value) for one in kind] for kind in (EnvironmentState, DesiredState, EnvironmentAction)
)
MAX_CORES, MAX_GB, MAX_GPUS, MAX_MINUTES = 100_000, 1_000_000, 1024, 60 * 24 * 365


class DeclaredPort(serializers.Serializer):
    name = serializers.CharField(max_length=32, help_text="what its door is called")
    port = serializers.IntegerField(min_value=1, max_value=65_535)


def _make_text_map(source: str | None = None, help_text: str = "", max_length: int = 10_000) -> serializers.DictField:
    child = serializers.CharField(max_length=max_length, allow_blank=True, trim_whitespace=False)
    named: dict[str, Any] = {"source": source} if source else {}
    return serializers.DictField(child=child, required=False, help_text=help_text, **named)


def _make_number_field(source: str, low: int, high: int, help_text: str = "") -> serializers.IntegerField:
    limits: dict[str, Any] = {"min_value": low, "max_value": high, "required": False, "help_text": help_text}
    return serializers.IntegerField(source=source, **limits)


class EnvironmentSizes(serializers.Serializer):
    gpuCount = _make_number_field("gpu_count", 0, MAX_GPUS)
    cpuCores = _make_number_field("cpu_cores", 1, MAX_CORES)
    memoryGb = _make_number_field("memory_gb", 1, MAX_GB)
    sharedMemoryGb = _make_number_field("shared_memory_gb", 0, MAX_GB, "0: as the engine has it")
    diskGb = _make_number_field("disk_gb", 0, MAX_GB, "0: as the engine has it; it only grows")


class EnvironmentResizeRequest(EnvironmentSizes):
    """New sizes of an environment; they take effect at its next start."""


class EnvironmentMadeOf(EnvironmentSizes):
    kind = serializers.ChoiceField(KINDS, required=False)
    image = serializers.CharField(max_length=200, allow_blank=True, required=False)
    packages = serializers.ListField(
        child=serializers.CharField(max_length=300), max_length=200, required=False, help_text="as pip reads them"
    )
    gpuType = serializers.CharField(source="gpu_type", max_length=40, allow_blank=True, required=False)
    emulated = serializers.BooleanField(required=False, help_text="CPU processes stand in for the GPUs")
    ports = serializers.ListField(child=DeclaredPort(), max_length=20, required=False)
    env = _make_text_map(help_text="variables")
    secretEnv = _make_text_map("secret_env", "variables with the names of the project's secrets", 100)
    startScript = serializers.CharField(
        source="start_script", max_length=20_000, allow_blank=True, trim_whitespace=False, required=False,
        help_text="run by a shell before the service begins; of a custom one without an image, the service",
    )  # fmt: skip
    idleStopMinutes = serializers.IntegerField(
        source="idle_stop_minutes", min_value=1, max_value=MAX_MINUTES, allow_null=True, required=False,
        help_text="that nobody uses it, before it stops by itself; null: never",
    )  # fmt: skip


class EnvironmentTemplateChangeRequest(EnvironmentMadeOf):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    clusterId = KeyField(source="cluster_id", required=False, allow_null=True)
    zone = KeyField(required=False, allow_null=True, help_text="id or name")


class EnvironmentTemplateCreateRequest(EnvironmentTemplateChangeRequest):
    projectId = KeyField(
        source="project_id", required=False, allow_null=True, help_text="null: offered to every project"
    )


class EnvironmentTemplateQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="what this project may use")
    kind = serializers.ListField(child=serializers.ChoiceField(KINDS), max_length=10, required=False)
    ordering = OrderingField("name", name="name", createdAt="created_at", gpuCount="gpu_count")


class EnvironmentTemplate(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    projectId = serializers.CharField(allow_null=True, help_text="null: offered to every project")
    clusterId = serializers.CharField(allow_null=True)
    zone = ZoneRef(allow_null=True)
    kind = serializers.ChoiceField(EnvironmentKind.choices)
    image = serializers.CharField()
    packages = serializers.ListField(child=serializers.CharField())
    gpuType = serializers.CharField()
    gpuCount = serializers.IntegerField()
    emulated = serializers.BooleanField()
    cpuCores = serializers.IntegerField()
    memoryGb = serializers.IntegerField()
    sharedMemoryGb = serializers.IntegerField()
    diskGb = serializers.IntegerField()
    ports = DeclaredPort(many=True)
    env = serializers.DictField(child=serializers.CharField(), help_text="empty for whoever may only look")
    secretEnv = serializers.DictField(child=serializers.CharField(), help_text="names of secrets, as env")
    startScript = serializers.CharField()
    idleStopMinutes = serializers.IntegerField(allow_null=True)
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()


class EnvironmentMakeRequest(EnvironmentMadeOf):
    """An environment to create. What is left out comes from the template."""

    templateId = KeyField(source="template")
    projectId = KeyField(source="project")
    name = serializers.CharField(max_length=100)
    clusterId = KeyField(source="cluster", required=False, allow_null=True)
    zone = KeyField(required=False, allow_null=True, help_text="id or name")
    host = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="on engines of hosts; empty: the engine chooses"
    )


class EnvironmentCloneRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)


class EnvironmentKeepRequest(serializers.Serializer):
    hours = serializers.FloatField(min_value=0.1, max_value=MAX_KEEP_HOURS)


class EnvironmentLogsQuery(serializers.Serializer):
    cursor = serializers.IntegerField(
        min_value=-MAX_INT4, max_value=2**62, default=0, help_text="a byte of the log; negative: so many before its end"
    )
    limit = serializers.IntegerField(min_value=1, max_value=1 << 20, default=1 << 16, help_text="bytes")


class EnvironmentLogs(serializers.Serializer):
    text = serializers.CharField()
    cursor = serializers.IntegerField(help_text="where to read on")
    end = serializers.BooleanField(help_text="nothing more right now")


class HostedReason(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class HostedDoing(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()


class HostedDoor(serializers.Serializer):
    name = serializers.CharField()
    port = serializers.IntegerField(allow_null=True, help_text="null: the service itself")


class HostedKernel(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    busy = serializers.BooleanField()
    since = serializers.DateTimeField(allow_null=True)


class HostedCost(serializers.Serializer):
    gpuHours = serializers.FloatField()
    amount = serializers.FloatField(allow_null=True, help_text="null: nobody has said what it costs")
    currency = serializers.CharField()


class HostedItem(serializers.Serializer):
    state = serializers.ChoiceField(STATES)
    since = serializers.DateTimeField()
    reason = HostedReason(allow_null=True, help_text="why it waits, or ended")
    doing = HostedDoing(allow_null=True, help_text="what it is at while it starts")
    wanted = serializers.ChoiceField(DESIRED_STATES)
    allowedActions = serializers.ListField(child=serializers.ChoiceField(ACTIONS))
    templateId = serializers.CharField(allow_null=True)
    templateName = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(help_text="0 before the first")
    idleStopMinutes = serializers.IntegerField(allow_null=True)
    activeAt = serializers.DateTimeField(allow_null=True, help_text="the last sign of somebody's work")
    stopsAt = serializers.DateTimeField(allow_null=True, help_text="when it stops by itself, if nobody uses it")
    keepUntil = serializers.DateTimeField(allow_null=True)
    taskId = serializers.CharField(allow_null=True, help_text="it was made for this task")
    afterwards = serializers.CharField(allow_null=True, help_text="what becomes of it then: delete, stop, keep")
    doors = HostedDoor(many=True)
    kernels = HostedKernel(many=True)
    connections = serializers.IntegerField(help_text="doors, terminals and tunnels that are open")
    sharedMemoryGb = serializers.IntegerField()
    diskGb = serializers.IntegerField()
    cost = HostedCost(help_text="so far, of all its runs")


class ProjectWarmRequest(serializers.Serializer):
    WHOLE = True

    warm = serializers.BooleanField()


class EnvironmentStandby(serializers.Serializer):
    isWanted = serializers.BooleanField(help_text="it is to be warm, by itself or by its project")
    state = serializers.ChoiceField(
        [(one, one) for one in standby.STATES],
        help_text="idle: begins with the next preview; engine: its engine has one for all; unavailable, failed: see "
        "`reason`",
    )  # fmt: skip
    memoryBytes = serializers.IntegerField(allow_null=True, help_text="what the process holds")
    until = serializers.DateTimeField(allow_null=True, help_text="when it ends, if nobody asks for it")
    reason = HostedReason(allow_null=True)


class EnvironmentItem(KnownEnvironment):
    standby = EnvironmentStandby(help_text="whether the training stack stands by in it, imported")
    hosted = HostedItem(allow_null=True, help_text="null: the platform did not make it")


class EnvironmentDetail(EnvironmentItem):
    discoveredAs = serializers.CharField(help_text="its key in the cluster; empty = registered by hand")
    engine = serializers.DictField(allow_null=True, help_text="what its backend understands; for maintainers")


class LifeEvent(serializers.Serializer):
    at = serializers.DateTimeField()
    code = serializers.CharField()
    message = serializers.CharField()


class LifeRun(HostedCost):
    number = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    runningAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)
    outcome = HostedReason(allow_null=True)
    gpuType = serializers.CharField()
    gpuCount = serializers.IntegerField()


class EnvironmentLife(serializers.Serializer):
    events = LifeEvent(many=True)
    runs = LifeRun(many=True)
