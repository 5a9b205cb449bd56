"""Serializers of the overview, its alerts and its projects."""

from rest_framework import serializers

from apps.accounts.api.serializers import ProjectItem
from apps.common.openapi import KeyField, Reason
from apps.overview.attention.entries import SUBJECTS
from apps.overview.attention.pages import ALERT_KINDS, LEVEL_NAMES
from apps.overview.capacity import EVENT_KINDS as EVENTS
from apps.scheduling.api.serializers import UsageParts
from apps.training.public import TaskState

ATTENTION_KINDS = [(kind.name, kind.name) for kind in ALERT_KINDS]
ATTENTION_LEVELS = [(level, level) for level in LEVEL_NAMES.values()]
ATTENTION_SUBJECTS = [(subject, subject) for subject in SUBJECTS]
CAPACITY_KINDS = [(kind, kind) for kind in EVENTS]
TASK_STATES = [(state.value, state.value) for state in TaskState]
MAX_PAGE_SIZE = 200


class OverviewQuery(serializers.Serializer):
    project = KeyField(required=False, allow_blank=True, help_text="id")
    zone = serializers.CharField(max_length=100, required=False, allow_blank=True, help_text="name")
    gpuType = serializers.CharField(max_length=40, required=False, allow_blank=True)


class GpuTally(serializers.Serializer):
    """Numbers of GPUs. `held` = `busy` + `idle` + `unknown`; `total` = `held` + `free` + `outOfService`."""

    key = serializers.CharField(help_text="zone, type, project id or user name; empty: of others, or in all")
    name = serializers.CharField()
    total = serializers.IntegerField(help_text="of a project or a person: what it holds")
    outOfService = serializers.IntegerField(help_text="not running, or cordoned, and held by nobody")
    free = serializers.IntegerField()
    held = serializers.IntegerField(help_text="on environments that a task has")
    busy = serializers.IntegerField(help_text="in use within the last ten minutes")
    idle = serializers.IntegerField(help_text="held by a running task, and under 5 % for ten minutes")
    unknown = serializers.IntegerField(help_text="held, and nothing measures them")


class UtilisationPoint(serializers.Serializer):
    """Use of GPUs within one interval, in GPU-hours."""

    at = serializers.DateTimeField(help_text="when the hour, or the day, begins")
    there = serializers.FloatField()
    held = serializers.FloatField()
    measured = serializers.FloatField(help_text="of which the telemetry knows")
    used = serializers.FloatField(help_text="of the measured ones: weighed by utilisation")


class Utilisation(serializers.Serializer):
    day = UtilisationPoint(many=True, help_text="by hour; the last one still runs")
    month = UtilisationPoint(many=True, help_text="by day; the last one still runs")


class OverviewTasks(serializers.Serializer):
    for _state, _ in TASK_STATES:
        locals()[_state] = serializers.IntegerField()
    del _state, _


class WaitingAge(serializers.Serializer):
    upTo = serializers.IntegerField(allow_null=True, help_text="seconds; null: longer than the group before")
    count = serializers.IntegerField()


class WaitingReason(serializers.Serializer):
    code = serializers.CharField(help_text="empty: nobody has decided yet")
    cause = serializers.CharField(help_text="filter of the list of tasks: who waits for this")
    message = serializers.CharField(help_text="what they have in common; of one alone, all")
    count = serializers.IntegerField()
    since = serializers.DateTimeField(help_text="since when the first of them has waited")


class OldestWaiting(serializers.Serializer):
    taskId = serializers.CharField()
    name = serializers.CharField()
    owner = serializers.CharField()
    projectId = serializers.CharField()
    projectName = serializers.CharField()
    status = serializers.ChoiceField(TASK_STATES)
    gpus = serializers.IntegerField()
    since = serializers.DateTimeField()
    reason = Reason(allow_null=True)


class OverviewQueue(serializers.Serializer):
    total = serializers.IntegerField()
    since = serializers.DateTimeField(allow_null=True, help_text="since when the first of them has waited")
    ages = WaitingAge(many=True)
    reasons = WaitingReason(many=True, help_text="by what is waited for, the most frequent first; thirty at most")
    reasonsLeftOut = serializers.IntegerField(help_text="further ones")
    oldest = OldestWaiting(many=True, help_text="the ten that have waited longest")


class FailureCause(serializers.Serializer):
    """A cause of failures: what a diagnosis rule found, else an exception with its line, else how the attempt ended."""

    cause = serializers.CharField(help_text="filter of the list of tasks: which had it")
    code = serializers.CharField()
    attempts = serializers.IntegerField(help_text="that ended by it")
    tasks = serializers.IntegerField(help_text="that failed because of it")
    message = serializers.CharField(help_text="what all of them have in common; … stands for what differs")
    example = serializers.CharField(help_text="as the newest of them was told")
    taskId = serializers.CharField(allow_null=True, help_text="of the newest of them")


class FailingNode(serializers.Serializer):
    environmentId = serializers.CharField()
    name = serializers.CharField()
    starts = serializers.IntegerField(help_text="attempts that began there")
    failures = serializers.IntegerField(help_text="attempts and pre-flight tests that blame it")
    standsOut = serializers.BooleanField(help_text="it fails more often than chance explains")


class OverviewFailures(serializers.Serializer):
    since = serializers.DateTimeField()
    attempts = serializers.IntegerField(help_text="that failed, by any cause")
    tasks = serializers.IntegerField(help_text="that failed, by any cause")
    causes = FailureCause(many=True, help_text="the most frequent first; thirty at most")
    causesLeftOut = serializers.IntegerField(help_text="further ones")
    starts = serializers.IntegerField(help_text="attempts × nodes that began")
    nodesBlamed = serializers.IntegerField()
    nodes = FailingNode(many=True, help_text="the twenty worst")


class OverviewGoodput(UsageParts):
    """What held GPU time was used for, in GPU-hours, counted for leases that were released since then."""

    since = serializers.DateTimeField()
    gpuHours = serializers.FloatField()
    goodput = serializers.FloatField(allow_null=True, help_text="share that moved training forward")
    waited = serializers.FloatField(help_text="before that: for which tasks waited for what they then held")
    ettr = serializers.FloatField(allow_null=True, help_text="effective training time ratio: of waited and held time")


class CapacityEvent(serializers.Serializer):
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(CAPACITY_KINDS)
    name = serializers.CharField(help_text="of the environment or environments")
    gpus = serializers.IntegerField(allow_null=True)
    who = serializers.CharField(help_text="who did it (administrators), or for which project it is; empty: unknown")
    path = serializers.CharField(allow_null=True, help_text="of the console")


class Overview(serializers.Serializer):
    at = serializers.DateTimeField()
    all = serializers.BooleanField(help_text="everything, and not only your projects' part")
    tasks = OverviewTasks()
    gpus = GpuTally()
    zones = GpuTally(many=True)
    types = GpuTally(many=True)
    projects = GpuTally(many=True, help_text="that hold any")
    people = GpuTally(many=True, help_text="who hold any")
    utilisation = Utilisation()
    queue = OverviewQueue()
    failures = OverviewFailures()
    goodput = OverviewGoodput()
    capacity = CapacityEvent(many=True, help_text="of the last seven days, the newest first")


class AttentionQuery(serializers.Serializer):
    page = serializers.IntegerField(min_value=1, max_value=1_000_000, default=1)
    pageSize = serializers.IntegerField(min_value=1, max_value=MAX_PAGE_SIZE, default=20)
    project = KeyField(required=False, allow_blank=True, help_text="id")
    kind = serializers.ListField(
        child=serializers.ChoiceField(ATTENTION_KINDS), max_length=100, required=False, help_text="may repeat"
    )
    mine = serializers.BooleanField(default=False, help_text="what concerns your own tasks, and nothing else")


class AttentionCount(serializers.Serializer):
    kind = serializers.ChoiceField(ATTENTION_KINDS)
    level = serializers.ChoiceField(ATTENTION_LEVELS)
    count = serializers.IntegerField()


class AttentionSubject(serializers.Serializer):
    type = serializers.ChoiceField(ATTENTION_SUBJECTS)
    id = serializers.CharField()
    name = serializers.CharField()


class AttentionHolder(serializers.Serializer):
    taskId = serializers.CharField()
    name = serializers.CharField()


class AttentionItem(serializers.Serializer):
    kind = serializers.ChoiceField(ATTENTION_KINDS)
    level = serializers.ChoiceField(ATTENTION_LEVELS)
    subject = AttentionSubject()
    message = serializers.CharField()
    hint = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    path = serializers.CharField(allow_null=True, help_text="of the console: where one can act")
    holder = AttentionHolder(allow_null=True, help_text="the task that has it")


class Attention(serializers.Serializer):
    kinds = AttentionCount(many=True, help_text="all kinds of which there are any, whatever was asked for")
    items = AttentionItem(many=True, help_text="the worst first")
    total = serializers.IntegerField()
    page = serializers.IntegerField()
    pageSize = serializers.IntegerField()


class ProjectSummary(ProjectItem):
    members = serializers.IntegerField(help_text="people who have a role")
    serviceAccounts = serializers.IntegerField()
    runningTasks = serializers.IntegerField(help_text="that start, run or stop")
    gpus = serializers.IntegerField(help_text="of these tasks")
