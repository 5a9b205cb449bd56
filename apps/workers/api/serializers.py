"""Serializers of requests and answers about workers and groups."""

from typing import Any

from django.db.models import CharField, Value
from django.db.models.functions import Cast, Concat, LPad
from rest_framework import serializers

from apps.clusters.api.serializers import WarningItem
from apps.common.openapi import MAX_INT4, MAX_INT8, AddressField, KeyField, ProblemItem
from apps.common.pages import OrderingField, PageQuery
from apps.training.public import TaskState
from apps.workers import selectors
from apps.workers.health import STATUSES
from apps.workers.heartbeat.schema import (
    CAUSE_NUMBERS,
    CAUSE_TEXTS,
    CAUSE_WORDS,
    DAY_SECONDS,
    MAX_COUNT,
    MAX_PORTS,
    MAX_TEXT_LENGTH,
    MAX_WORKERS,
    PROCESS_STATES,
)
from apps.workers.models import GROUP_NAME_LENGTH, NODE_LENGTH, CommunicationBackend
from fermi.planning.request import MAX_RESTARTS_LIMIT

WORKER_STATUSES = [(status, status) for status in STATUSES]
PROCESS_CHOICES = [(state, state) for state in PROCESS_STATES]
SHOWN_PROCESS_CHOICES = [(state, state) for state in ("idle", *PROCESS_STATES)]
ACTIONS = [(action, action) for action in ("start", "stop", "restart", "edit", "delete")]
WORKER_ACTIONS = [(action, action) for action in selectors.WORKER_ACTIONS]
_BY_NUMBER = Concat("node", Value(" "), LPad(Cast("number", CharField()), 10, Value("0")))
BACKENDS = CommunicationBackend.choices
TASK_STATES = [(state.value, state.value) for state in TaskState]


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
    projectId = KeyField(
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
    """Facts about a worker's host. What is left out is unknown; further fields, of a newer agent, are ignored."""

    TAKES_MORE = True

    machineId = serializers.CharField(max_length=100, required=False, help_text="the same after every restart")
    host = serializers.CharField(max_length=200, required=False, allow_blank=True)
    ip = AddressField(required=False, allow_null=True)
    address = serializers.CharField(
        max_length=200, required=False, allow_blank=True, allow_null=True, help_text="where other hosts reach it"
    )
    zone = serializers.CharField(max_length=100, required=False, allow_blank=True, allow_null=True)
    gpuType = serializers.CharField(max_length=100, required=False, allow_blank=True, allow_null=True)
    gpuCount = serializers.IntegerField(min_value=0, max_value=1024, required=False)
    emulated = serializers.BooleanField(required=False)
    cpuCores = serializers.IntegerField(min_value=1, max_value=100_000, required=False)
    memoryGb = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False)
    versions = serializers.DictField(
        child=serializers.CharField(max_length=200, allow_blank=True, allow_null=True), required=False
    )
    lacks = serializers.ListField(
        child=serializers.CharField(max_length=200), max_length=256, required=False, allow_null=True,
        help_text="what frameworks need and its Python has not got; null: not known",
    )  # fmt: skip
    interfaces = serializers.ListField(child=serializers.JSONField(allow_null=True), max_length=256, required=False)
    network = serializers.DictField(child=serializers.JSONField(allow_null=True), required=False)
    workspace = serializers.CharField(max_length=500, required=False, allow_blank=True)
    python = serializers.CharField(max_length=500, required=False, allow_blank=True)
    version = serializers.CharField(max_length=60, required=False, allow_blank=True, help_text="of the agent")
    containers = serializers.CharField(
        max_length=200, required=False, allow_blank=True, allow_null=True,
        help_text="the engine that runs images of dev environments there (`podman 5.4.2`); empty: none",
    )  # fmt: skip


class WorkerRegisterRequest(serializers.Serializer):
    workers = serializers.ListField(child=WorkerEntry(), min_length=1, max_length=MAX_WORKERS)
    incarnation = serializers.CharField(max_length=64, help_text="another one for each start of the agent")
    facts = WorkerFacts()


class RegisteredWorker(serializers.Serializer):
    id = serializers.CharField()
    token = serializers.CharField(help_text="the worker's own; the one before is void")


class WorkersRegistered(serializers.Serializer):
    workers = RegisteredWorker(many=True)


class WorkerCause(serializers.Serializer):
    """A cause that a runner found on its own machine, with the parameters of its text."""

    TAKES_MORE = True

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        given: dict[str, Any] = {"allow_null": True, "required": False}
        numbers = {"min_value": -MAX_COUNT, "max_value": MAX_COUNT, **given}
        texts = {"max_length": MAX_TEXT_LENGTH, "allow_blank": True, **given}
        return {
            **{name: serializers.CharField(max_length=MAX_TEXT_LENGTH, **given) for name in CAUSE_WORDS},
            **{name: serializers.IntegerField(**numbers) for name in CAUSE_NUMBERS},
            **{name: serializers.CharField(**texts) for name in CAUSE_TEXTS},
        }


class WorkerProcess(serializers.Serializer):
    TAKES_MORE = True

    name = serializers.CharField(max_length=80, help_text="the attempt, as in the order")
    rank = serializers.IntegerField(min_value=0, max_value=MAX_INT4, allow_null=True, required=False)
    state = serializers.ChoiceField(PROCESS_CHOICES)
    pid = serializers.IntegerField(min_value=0, max_value=MAX_INT4, allow_null=True, required=False)
    exitCode = serializers.IntegerField(
        min_value=-MAX_INT4,
        max_value=MAX_INT4,
        allow_null=True,
        required=False,
        help_text="negative: killed by that signal",
    )
    endedAt = serializers.FloatField(allow_null=True, required=False, help_text="unix seconds")
    left = serializers.BooleanField(
        allow_null=True, required=False, help_text="whether a process, or a byte of its log, is still there"
    )
    asked = serializers.BooleanField(required=False, help_text="whether it was told to end before it did")
    stillSince = serializers.FloatField(
        allow_null=True, required=False, help_text="unix seconds; it has done nothing at all for minutes"
    )
    cause = WorkerCause(allow_null=True, required=False, help_text="why it failed, where its runner knows")
    doing = serializers.JSONField(
        allow_null=True, required=False,
        help_text="what its runner makes ready before the rank begins: `code`, `file`, and what was `said` last",
    )  # fmt: skip
    error = serializers.JSONField(
        allow_null=True, required=False, help_text="the exception that ended it, as its runner tells of it"
    )
    stalled = serializers.JSONField(
        allow_null=True, required=False, help_text="where it hangs, as its runner tells of it"
    )
    kill = serializers.JSONField(
        allow_null=True, required=False, help_text="what the kernel has to say of its end by a signal"
    )
    course = serializers.JSONField(
        allow_null=True, required=False,
        help_text="when its rank began (`began_at`), and how far it had come when it ended (`last_step`)",
    )  # fmt: skip


class WorkerPort(serializers.Serializer):
    TAKES_MORE = True

    port = serializers.IntegerField(min_value=-65535, max_value=65535)
    holder = serializers.CharField(
        allow_null=True,
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="`pid 4711 (nc -l)`; null: not the agent's to see",
    )


class WorkerUsage(serializers.Serializer):
    TAKES_MORE = True

    gpuUtilization = serializers.FloatField(allow_null=True, required=False)
    gpuMemoryUsedMb = serializers.FloatField(allow_null=True, required=False)
    gpuMemoryTotalMb = serializers.FloatField(allow_null=True, required=False)
    cpuPercent = serializers.FloatField(allow_null=True, required=False)
    memoryUsedMb = serializers.FloatField(allow_null=True, required=False)
    ports = serializers.ListField(
        child=WorkerPort(), required=False, max_length=MAX_PORTS,
        help_text="of one worker of a host: the TCP ports that others than training listen on there",
    )  # fmt: skip


class WorkerLogs(serializers.Serializer):
    TAKES_MORE = True

    offset = serializers.IntegerField(min_value=0, max_value=MAX_INT8)


class WorkerBeat(serializers.Serializer):
    TAKES_MORE = True

    id = serializers.CharField(max_length=80)
    token = serializers.CharField(max_length=200, help_text="the worker's own")
    incarnation = serializers.CharField(max_length=64)
    sequence = serializers.IntegerField(
        min_value=-MAX_COUNT, max_value=MAX_COUNT, help_text="counts up within an incarnation"
    )
    generation = serializers.IntegerField(
        min_value=-MAX_COUNT, max_value=MAX_COUNT, help_text="the newest one acted on"
    )
    process = WorkerProcess(allow_null=True, default=None)
    usage = WorkerUsage(required=False, allow_null=True)
    pulse = serializers.JSONField(
        allow_null=True, required=False, help_text="how its rank gets on, as its runner tells of it"
    )
    telemetry = serializers.JSONField(
        allow_null=True, required=False, help_text="what its GPU, its rank and its host used, once each 15 seconds"
    )
    hosted = serializers.JSONField(
        allow_null=True, required=False, help_text="the dev environments on its host: `runs` by name, and `gone`"
    )
    logs = WorkerLogs(required=False, allow_null=True)


class WorkerHeartbeatRequest(serializers.Serializer):
    TAKES_MORE = True

    waitSeconds = serializers.FloatField(
        min_value=0,
        max_value=DAY_SECONDS,
        default=0,
        help_text="how long the answer may be held while there is nothing new",
    )
    workers = serializers.ListField(child=WorkerBeat(), max_length=MAX_WORKERS)


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


class WorkerHostedStop(serializers.Serializer):
    graceSeconds = serializers.FloatField(allow_null=True)


class WorkerHostedRef(serializers.Serializer):
    name = serializers.CharField()
    environment = serializers.CharField()
    run = serializers.IntegerField()
    stop = WorkerHostedStop(allow_null=True)


class WorkerChannelRef(serializers.Serializer):
    id = serializers.CharField(help_text="good for one WebSocket: /api/v1/workers/{worker}/channels/{id}")
    run = serializers.CharField(help_text="a dev environment's run, or the attempt of which this worker has a rank")


class WorkerHostedDesired(serializers.Serializer):
    runs = WorkerHostedRef(many=True, help_text="dev environments that the host is to keep; end others")
    removed = serializers.ListField(child=serializers.CharField(), help_text="environments of which nothing may stay")
    channels = WorkerChannelRef(many=True, help_text="somebody waits for a stream into such a run, or beside a rank")


class WorkerDesired(serializers.Serializer):
    id = serializers.CharField()
    generation = serializers.IntegerField()
    order = WorkerOrderRef(allow_null=True)
    stop = WorkerStop(allow_null=True)
    hosted = WorkerHostedDesired(allow_null=True)
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
    secrets = serializers.DictField(
        child=serializers.CharField(),
        help_text="variables that the rank gets beside its spec's; not part of the digest",
    )


class WorkerHosted(serializers.Serializer):
    name = serializers.CharField()
    spec = serializers.JSONField(help_text="what the run is made from")
    secrets = serializers.DictField(child=serializers.CharField(), help_text="variables that it gets beside its own")


class WorkerLogQuery(serializers.Serializer):
    offset = serializers.IntegerField(min_value=0, max_value=MAX_INT8)


class WorkerLogAnswer(serializers.Serializer):
    acknowledged = serializers.IntegerField(help_text="bytes of this log that are here")


# What people see --------------------------------------------------------------------------------------------------
class WorkerQuery(PageQuery):
    group = KeyField(required=False, allow_blank=True, help_text="id or name; `none` = in no group")
    node = KeyField(required=False, allow_blank=True)
    status = serializers.ListField(
        child=serializers.ChoiceField(WORKER_STATUSES), max_length=100, required=False, help_text="may repeat"
    )
    ordering = OrderingField("id", id=_BY_NUMBER.asc(), group="group__name", lastHeartbeatAt="report__at")


class GroupRef(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class WorkerProcessItem(serializers.Serializer):
    state = serializers.ChoiceField(SHOWN_PROCESS_CHOICES)
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
    allowedActions = serializers.ListField(child=serializers.ChoiceField(WORKER_ACTIONS))


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
    secretEnv = serializers.DictField(
        source="secret_env", child=serializers.CharField(max_length=63), required=False,
        help_text="variables by name, each with the name of a secret of the project whose value it gets",
    )  # fmt: skip
    maxRestarts = serializers.IntegerField(
        source="max_restarts", min_value=0, max_value=MAX_RESTARTS_LIMIT, required=False
    )


class GroupCreateRequest(GroupChangeRequest):
    projectId = KeyField(
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
    groupId = KeyField(source="group_id", allow_null=True, help_text="null = out of any group")


class GroupTask(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(TASK_STATES)


class GroupItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    masterAddress = serializers.CharField()
    worldSize = serializers.IntegerField(allow_null=True)
    effectiveWorldSize = serializers.IntegerField()
    masterPort = serializers.IntegerField()
    backend = serializers.ChoiceField(BACKENDS)
    effectiveBackend = serializers.ChoiceField(
        BACKENDS, help_text="what its processes use: gloo where a worker has no GPU, whatever is set"
    )
    script = serializers.CharField()
    args = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(
        child=serializers.CharField(), help_text="values that look like keys are hidden from viewers"
    )
    secretEnv = serializers.DictField(child=serializers.CharField(), help_text="names of secrets")
    maxRestarts = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    workers = GroupMember(many=True, help_text="in the order of ranks")
    problems = ProblemItem(many=True, help_text="what keeps it from being started")
    warnings = WarningItem(many=True)
    task = GroupTask(allow_null=True, help_text="the newest one")
    allowedActions = serializers.ListField(child=serializers.ChoiceField(ACTIONS))


class WorkersMoved(serializers.Serializer):
    moved = serializers.ListField(child=serializers.CharField(), help_text="workers that are where they were to go")
