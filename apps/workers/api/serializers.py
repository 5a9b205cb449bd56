"""Shapes of requests and answers about workers and groups."""

from django.db.models import CharField, Value
from django.db.models.functions import Cast, Concat, LPad
from rest_framework import serializers

from apps.common.openapi import ProblemItem
from apps.common.pages import OrderingField, PageQuery
from apps.training.api.serializers import STATES
from apps.workers.beats import STATES as PROCESS_STATES
from apps.workers.health import STATUSES
from apps.workers.models import GROUP_NAME_LENGTH, NODE_LENGTH, CommunicationBackend

WORKER_STATUSES = [(status, status) for status in STATUSES]
PROCESSES = [(state, state) for state in PROCESS_STATES]
SHOWN_PROCESSES = [(state, state) for state in ("idle", *PROCESS_STATES)]
ACTIONS = [(action, action) for action in ("start", "stop", "restart", "edit", "delete")]
MOST = 1024
_BY_NUMBER = Concat("node", Value(" "), LPad(Cast("number", CharField()), 10, Value("0")))
BACKENDS = CommunicationBackend.choices


# Join tokens ------------------------------------------------------------------------------------------------------
class JoinTokenQuery(PageQuery):
    ordering = OrderingField("-createdAt", name="name", createdAt="created_at", lastUsedAt="last_used_at")


class JoinTokenItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    owner = serializers.CharField()
    createdAt = serializers.DateTimeField()
    lastUsedAt = serializers.DateTimeField(allow_null=True)


class JoinTokenCreateRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    projectId = serializers.CharField(
        source="project_id", required=False, allow_null=True, default=None, help_text="by default your only one"
    )


class JoinTokenCreated(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    token = serializers.CharField(help_text="shown this once")
    command = serializers.CharField(help_text="what to run on a host")


# What agents say --------------------------------------------------------------------------------------------------
class WorkerEntry(serializers.Serializer):
    id = serializers.CharField(max_length=80, help_text="<node>-<number>")
    gpu = serializers.IntegerField(min_value=0, max_value=1024, allow_null=True, default=None, help_text="null = CPU")


class WorkerFacts(serializers.Serializer):
    """Of the host; what is left out is not known, and what a newer agent tells besides is not kept."""

    TAKES_MORE = True

    machineId = serializers.CharField(max_length=100, required=False, help_text="the same after every restart")
    host = serializers.CharField(max_length=200, required=False, allow_blank=True)
    ip = serializers.IPAddressField(required=False, allow_null=True)
    address = serializers.CharField(
        max_length=200, required=False, allow_blank=True, allow_null=True, help_text="where other hosts reach it"
    )
    zone = serializers.CharField(max_length=100, required=False, allow_blank=True, allow_null=True)
    gpuType = serializers.CharField(max_length=100, required=False, allow_blank=True, allow_null=True)
    gpuCount = serializers.IntegerField(min_value=0, required=False)
    emulated = serializers.BooleanField(required=False)
    cpuCores = serializers.IntegerField(min_value=1, max_value=100_000, required=False)
    memoryGb = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False)
    versions = serializers.DictField(
        child=serializers.CharField(max_length=200, allow_blank=True, allow_null=True), required=False
    )
    interfaces = serializers.ListField(child=serializers.JSONField(), max_length=256, required=False)
    network = serializers.DictField(child=serializers.JSONField(), required=False)
    workspace = serializers.CharField(max_length=500, required=False, allow_blank=True)
    python = serializers.CharField(max_length=500, required=False, allow_blank=True)
    version = serializers.CharField(max_length=60, required=False, allow_blank=True, help_text="of the agent")


class WorkerRegisterRequest(serializers.Serializer):
    workers = WorkerEntry(many=True)
    incarnation = serializers.CharField(max_length=64, help_text="another one for each start of the agent")
    facts = WorkerFacts()

    def validate_workers(self, workers: list[dict[str, object]]) -> list[dict[str, object]]:
        if not 1 <= len(workers) <= MOST:
            raise serializers.ValidationError(f"1 … {MOST}", code="max_length")
        return workers


class RegisteredWorker(serializers.Serializer):
    id = serializers.CharField()
    token = serializers.CharField(help_text="the worker's own; the one before is void")


class WorkersRegistered(serializers.Serializer):
    workers = RegisteredWorker(many=True)


class WorkerProcess(serializers.Serializer):
    name = serializers.CharField(max_length=80, help_text="the attempt, as in the order")
    rank = serializers.IntegerField(allow_null=True, required=False)
    state = serializers.ChoiceField(PROCESSES)
    pid = serializers.IntegerField(allow_null=True, required=False)
    exitCode = serializers.IntegerField(allow_null=True, required=False, help_text="negative: killed by that signal")
    endedAt = serializers.FloatField(allow_null=True, required=False, help_text="unix seconds")
    left = serializers.BooleanField(
        allow_null=True, required=False, help_text="whether a process, or a byte of its log, is still there"
    )


class WorkerUsage(serializers.Serializer):
    gpuUtilization = serializers.FloatField(allow_null=True, required=False)
    gpuMemoryUsedMb = serializers.FloatField(allow_null=True, required=False)
    gpuMemoryTotalMb = serializers.FloatField(allow_null=True, required=False)
    cpuPercent = serializers.FloatField(allow_null=True, required=False)
    memoryUsedMb = serializers.FloatField(allow_null=True, required=False)


class WorkerLogs(serializers.Serializer):
    offset = serializers.IntegerField(min_value=0)


class WorkerBeat(serializers.Serializer):
    id = serializers.CharField(max_length=80)
    token = serializers.CharField(max_length=200, help_text="the worker's own")
    incarnation = serializers.CharField(max_length=64)
    sequence = serializers.IntegerField(help_text="counts up within an incarnation")
    generation = serializers.IntegerField(help_text="the newest one acted on")
    process = WorkerProcess(allow_null=True, default=None)
    usage = WorkerUsage(required=False, allow_null=True)
    logs = WorkerLogs(required=False, allow_null=True)


class WorkerHeartbeatRequest(serializers.Serializer):
    waitSeconds = serializers.FloatField(
        min_value=0, default=0, help_text="how long the answer may be held while there is nothing new"
    )
    workers = WorkerBeat(many=True)


class WorkerOrderRef(serializers.Serializer):
    name = serializers.CharField()
    taskId = serializers.CharField()
    attempt = serializers.IntegerField()
    rank = serializers.IntegerField()
    digest = serializers.CharField(help_text="another one: fetch the order")
    begun = serializers.BooleanField(required=False, help_text="it was begun once: nobody begins it again")


class WorkerStop(serializers.Serializer):
    name = serializers.CharField()
    graceSeconds = serializers.FloatField()
    killAt = serializers.FloatField(help_text="unix seconds")


class WorkerError(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()


class WorkerDesired(serializers.Serializer):
    id = serializers.CharField()
    generation = serializers.IntegerField()
    order = WorkerOrderRef(allow_null=True)
    stop = WorkerStop(allow_null=True)
    error = WorkerError(allow_null=True)


class WorkerHeartbeatAnswer(serializers.Serializer):
    intervalSeconds = serializers.FloatField()
    workers = WorkerDesired(many=True)


class WorkerOrder(serializers.Serializer):
    name = serializers.CharField()
    generation = serializers.IntegerField()
    digest = serializers.CharField()
    spec = serializers.JSONField()
    files = serializers.DictField(child=serializers.JSONField())


class WorkerLogQuery(serializers.Serializer):
    offset = serializers.IntegerField(min_value=0)


class WorkerLogAnswer(serializers.Serializer):
    acknowledged = serializers.IntegerField(help_text="bytes of this log that are here")


# What people see --------------------------------------------------------------------------------------------------
class WorkerQuery(PageQuery):
    group = serializers.CharField(required=False, help_text="id or name; `none` = in no group")
    node = serializers.CharField(required=False)
    status = serializers.ListField(
        child=serializers.ChoiceField(WORKER_STATUSES), required=False, help_text="may repeat"
    )
    ordering = OrderingField("id", id=_BY_NUMBER.asc(), group="group__name", lastHeartbeatAt="report__at")


class GroupRef(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class WorkerProcessItem(serializers.Serializer):
    state = serializers.ChoiceField(SHOWN_PROCESSES)
    pid = serializers.IntegerField(allow_null=True)
    exitCode = serializers.IntegerField(allow_null=True)
    taskId = serializers.CharField(allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)


class WorkerUsageItem(serializers.Serializer):
    gpuUtilization = serializers.FloatField(allow_null=True)
    gpuMemoryUsedMb = serializers.FloatField(allow_null=True)
    gpuMemoryTotalMb = serializers.FloatField(allow_null=True)
    cpuPercent = serializers.FloatField(allow_null=True)
    memoryUsedMb = serializers.FloatField(allow_null=True)


class GroupMember(serializers.Serializer):
    id = serializers.CharField()
    node = serializers.CharField()
    number = serializers.IntegerField()
    status = serializers.ChoiceField(WORKER_STATUSES)
    rank = serializers.IntegerField(allow_null=True, help_text="null: takes no part, the world is smaller")
    localRank = serializers.IntegerField(allow_null=True)
    nodeRank = serializers.IntegerField(allow_null=True)


class WorkerItem(GroupMember):
    projectId = serializers.CharField()
    gpu = serializers.IntegerField(allow_null=True, help_text="null = CPU")
    group = GroupRef(allow_null=True)
    worldSize = serializers.IntegerField(allow_null=True)
    lastHeartbeatAt = serializers.DateTimeField(allow_null=True)
    heartbeatAgeSeconds = serializers.FloatField(allow_null=True)
    generation = serializers.IntegerField()
    process = WorkerProcessItem()
    usage = WorkerUsageItem()
    environmentId = serializers.CharField(allow_null=True)
    host = serializers.CharField()
    ip = serializers.CharField(allow_null=True)
    version = serializers.CharField()


class WorkerEnvironment(serializers.Serializer):
    env = serializers.DictField(child=serializers.CharField(), help_text="empty while the group cannot be started")
    problems = ProblemItem(many=True)


class GroupQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at")


class GroupChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=GROUP_NAME_LENGTH)
    masterAddress = serializers.CharField(
        source="master_address", max_length=NODE_LENGTH, allow_blank=True, required=False,
        help_text="the master's node name, without -number; may be left out with one node",
    )  # fmt: skip
    worldSize = serializers.IntegerField(
        source="world_size", min_value=1, max_value=100_000, allow_null=True, required=False,
        help_text="null = the number of workers; never more",
    )  # fmt: skip
    masterPort = serializers.IntegerField(source="master_port", min_value=0, max_value=1_000_000, required=False)
    backend = serializers.ChoiceField(BACKENDS, required=False)
    script = serializers.CharField(max_length=500, allow_blank=True, required=False)
    args = serializers.ListField(
        child=serializers.CharField(max_length=4000, allow_blank=True, trim_whitespace=False),
        max_length=1000,
        required=False,
    )
    env = serializers.DictField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=32_000), required=False
    )
    maxRestarts = serializers.IntegerField(source="max_restarts", min_value=0, max_value=100, required=False)


class GroupCreateRequest(GroupChangeRequest):
    projectId = serializers.CharField(
        source="project_id", required=False, allow_null=True, default=None, help_text="by default your only one"
    )
    workerIds = serializers.ListField(
        source="worker_ids", child=serializers.CharField(max_length=80), max_length=10_000, default=list,
        help_text="workers that are in no group yet",
    )  # fmt: skip


class GroupMoveRequest(serializers.Serializer):
    workerIds = serializers.ListField(
        source="worker_ids", child=serializers.CharField(max_length=80), min_length=1, max_length=10_000
    )
    groupId = serializers.CharField(source="group_id", allow_null=True, help_text="null = out of any group")


class GroupTask(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(STATES)


class GroupItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    masterAddress = serializers.CharField()
    worldSize = serializers.IntegerField(allow_null=True)
    effectiveWorldSize = serializers.IntegerField()
    masterPort = serializers.IntegerField()
    backend = serializers.ChoiceField(BACKENDS)
    script = serializers.CharField()
    args = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(child=serializers.CharField())
    maxRestarts = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    workers = GroupMember(many=True, help_text="in the order of ranks")
    problems = ProblemItem(many=True, help_text="what keeps it from being started")
    task = GroupTask(allow_null=True, help_text="the newest one")
    allowedActions = serializers.ListField(child=serializers.ChoiceField(ACTIONS))


class WorkersMoved(serializers.Serializer):
    moved = serializers.ListField(child=serializers.CharField(), help_text="workers that are where they were to go")
