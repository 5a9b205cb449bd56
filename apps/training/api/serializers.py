"""Serializers of training tasks."""

from typing import get_args

from django.db.models import F
from rest_framework import serializers

from apps.clusters.api.serializers import WarningItem
from apps.common.openapi import MAX_INT4, MAX_INT8, DateTime, KeyField, ProblemItem, Reason
from apps.common.pages import OrderingField, PageQuery
from apps.environments.api.memory import EnvironmentInUse
from apps.environments.api.packages import PackagesOfTask
from apps.training.logs import levels
from apps.training.services.code_source import DEFAULT_RETRY_CODE, RetryCode
from apps.training.states import TaskAction, TaskState
from fermi.diagnosis import Level
from fermi.diagnosis.actions import ActionCode
from fermi.export import TARGETS
from fermi.metrics.records import MEDIA_KINDS
from fermi.planning.request import MASTER_PORTS
from fermi.scheduler.snapshot import Priority

STATES = [(state.value, state.value) for state in TaskState]
PRIORITY_CLASSES = [(one.name.lower(), one.name.lower()) for one in Priority]
ACTIONS = [(action.value, action.value) for action in TaskAction]
LEVELS = [(level.value, level.value) for level in Level]
LOG_LEVELS = [(level, level) for level in levels.LEVELS]
ACTION_CODES = [(code.value, code.value) for code in ActionCode]
CODE_CHOICES = [(choice, choice) for choice in get_args(RetryCode)]


class DistributedInfo(serializers.Serializer):
    nodeCount = serializers.IntegerField()
    totalGpus = serializers.IntegerField()
    masterNode = serializers.CharField()
    framework = serializers.CharField()
    worldSize = serializers.IntegerField(help_text="number of processes, not of nodes")


class TaskSummary(serializers.Serializer):
    totalCpus = serializers.IntegerField()
    totalMemoryGb = serializers.IntegerField()
    gpuTypes = serializers.ListField(child=serializers.CharField())
    zones = serializers.ListField(child=serializers.CharField())
    crossZone = serializers.BooleanField()


class TaskCreated(serializers.Serializer):
    taskId = serializers.CharField()
    status = serializers.ChoiceField(STATES)
    distributedInfo = DistributedInfo()
    summary = TaskSummary()
    warnings = WarningItem(many=True)


class NamedText(serializers.Serializer):
    name = serializers.CharField()
    content = serializers.CharField()


class EngineArtifact(serializers.Serializer):
    kind = serializers.CharField()
    name = serializers.CharField()
    content = serializers.CharField()


class RunsIn(serializers.Serializer):
    """Where the ranks of an environment run (in it or beside it), and why."""

    way = serializers.ChoiceField([(way, way) for way in ("inside", "beside")])
    code = serializers.CharField()
    message = serializers.CharField(help_text="why: why it was chosen, or why the other way is not possible")


class PreviewEnvironment(serializers.Serializer):
    environmentId = serializers.CharField()
    name = serializers.CharField()
    runsIn = RunsIn(allow_null=True, help_text="null: its engine has only one way, or its way is refused")


class PreviewRank(serializers.Serializer):
    rank = serializers.IntegerField()
    localRank = serializers.IntegerField()
    nodeRank = serializers.IntegerField()
    environmentId = serializers.CharField()
    environmentName = serializers.CharField()
    device = serializers.IntegerField(allow_null=True, help_text="GPU index; null = CPU")
    env = serializers.DictField(child=serializers.CharField())


class PreviewSummary(TaskSummary):
    nodeCount = serializers.IntegerField()
    totalGpus = serializers.IntegerField()
    worldSize = serializers.IntegerField()
    isDistributed = serializers.BooleanField()


class TaskProposal(serializers.Serializer):
    """What the framework chose for these environments where the request leaves it open."""

    strategy = serializers.DictField(child=serializers.IntegerField())
    options = serializers.DictField(child=serializers.JSONField())
    reasons = WarningItem(many=True)


class EffectiveBatch(serializers.Serializer):
    """The batch of one optimizer step over all ranks."""

    perRank = serializers.IntegerField(help_text="samples per data-parallel rank and micro step")
    dataParallel = serializers.IntegerField(help_text="ranks with samples of their own")
    accumulation = serializers.IntegerField(help_text="micro steps per optimizer step")
    effective = serializers.IntegerField(help_text="the product: samples per optimizer step")
    learningRate = serializers.FloatField(allow_null=True, help_text="as given; null: only the script knows it")
    learningRateScaling = serializers.ChoiceField([(each, each) for each in ("none", "linear", "sqrt")])
    scaledLearningRate = serializers.FloatField(allow_null=True, help_text="after the warm-up")
    ownScript = serializers.BooleanField(help_text="what the script is told; whether it does so cannot be seen")


class ScalingRange(serializers.Serializer):
    low = serializers.FloatField()
    high = serializers.FloatField()


class ScalingRow(serializers.Serializer):
    """The expected speed on the first `nodes` of the nodes."""

    nodes = serializers.IntegerField()
    processes = serializers.IntegerField()
    theoretical = serializers.FloatField(help_text="speed-up over one node by the number of processes")
    speedup = ScalingRange()
    efficiency = ScalingRange(help_text="speed-up ÷ theoretical")


class ScalingExpectation(serializers.Serializer):
    """Expected speeds, as ranges, from measured, given and assumed figures; `reasons` say which."""

    rows = ScalingRow(many=True, help_text="the last one is the choice")
    stepSeconds = ScalingRange()
    tokensPerSecond = ScalingRange()
    preflightId = serializers.CharField(allow_null=True, help_text="the test that measured the network; null: assumed")
    reasons = WarningItem(many=True)


class TaskScaling(serializers.Serializer):
    expected = ScalingExpectation(allow_null=True, help_text="null: too little is known of the model")
    tokensPerSecond = serializers.FloatField(allow_null=True, help_text="median of the newest attempt's metrics")
    offBy = serializers.FloatField(
        allow_null=True, help_text="share by which the task is above or below the expected range; 0 = within"
    )


class ChosenEnvironments(serializers.Serializer):
    """The environments that the platform would choose now for a request for capacity."""

    nodeIds = serializers.ListField(child=serializers.CharField())
    masterNode = serializers.CharField()
    zones = serializers.ListField(child=serializers.CharField())
    startsNow = serializers.BooleanField(help_text="else these suit best, and others may when the turn comes")
    number = serializers.IntegerField(help_text="place in the queue, from 1")
    begins = serializers.DateTimeField(allow_null=True, help_text="when it would start, as far as that was declared")
    reason = Reason(allow_null=True, help_text="why it would wait")
    reasons = WarningItem(many=True, help_text="why these")


class HourlyPrice(serializers.Serializer):
    amount = serializers.DecimalField(16, 4, help_text="of all its GPUs for an hour, at today's prices")
    currency = serializers.CharField()


class ProposedResumeRule(serializers.Serializer):
    """How the script seems to take a checkpoint: for the request's entrypoint.resume, if the user accepts it."""

    args = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(child=serializers.CharField())
    itself = serializers.BooleanField()
    message = serializers.CharField(help_text="by what it was found")


class TaskPreview(serializers.Serializer):
    worldSize = serializers.IntegerField()
    nodeCount = serializers.IntegerField()
    masterNode = serializers.CharField(allow_null=True)
    environments = PreviewEnvironment(many=True, help_text="in the order of the request")
    ranks = PreviewRank(many=True)
    files = NamedText(many=True)
    artifacts = EngineArtifact(many=True)
    command = serializers.ListField(child=serializers.CharField(), help_text="of rank 0")
    missingArguments = serializers.ListField(
        child=serializers.CharField(), help_text="that the script declares for its process's place and is not given"
    )
    resume = ProposedResumeRule(allow_null=True, help_text="null: one is given, or nothing says so")
    problems = ProblemItem(many=True)
    warnings = WarningItem(many=True)
    chosen = ChosenEnvironments(allow_null=True, help_text="null: it names its environments")
    proposal = TaskProposal(allow_null=True, help_text="null: nothing was left empty")
    batch = EffectiveBatch(allow_null=True, help_text="null: only the user's own script knows")
    splits = serializers.ListField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text="strategies that can run here, the nearest first, where the one asked for cannot",
    )
    scaling = ScalingExpectation(
        allow_null=True, help_text="null: too little is known of the model, or a rule is broken"
    )
    summary = PreviewSummary()
    hourly = HourlyPrice(allow_null=True, help_text="null: nobody has said what one of its GPUs costs")
    inUse = EnvironmentInUse(many=True, help_text="of its environments, those in which others hold memory")
    memoryLooking = serializers.BooleanField(help_text="some are being looked at, and may be among them")
    packages = PackagesOfTask(allow_null=True, help_text="null: none of its ranks would run inside an environment")


class TaskQuery(PageQuery):
    status = serializers.ListField(
        child=serializers.ChoiceField(STATES), max_length=100, required=False, help_text="may repeat"
    )
    framework = KeyField(required=False, allow_blank=True)
    environment = KeyField(required=False, allow_blank=True, help_text="id")
    zone = KeyField(required=False, allow_blank=True, help_text="id or name")
    owner = KeyField(required=False, allow_blank=True, help_text="user name")
    project = KeyField(required=False, allow_blank=True, help_text="id")
    task = serializers.ListField(
        child=KeyField(), max_length=100, required=False, help_text="these alone, by id; may repeat"
    )
    parameter = serializers.ListField(
        child=serializers.CharField(max_length=1300),
        max_length=10,
        required=False,
        help_text="`lr=0.001`, `lr>0.001`, `optimizer.name=adamw`; may repeat",
    )
    cause = KeyField(
        required=False,
        allow_blank=True,
        max_length=300,
        help_text="as the overview names causes of failures and of waiting",
    )
    createdAfter = serializers.DateTimeField(required=False)
    createdBefore = serializers.DateTimeField(required=False)
    archived = serializers.BooleanField(
        required=False, help_text="false: without archived ones, true: these alone; without it, all"
    )
    cursor = serializers.CharField(
        max_length=1000,
        required=False,
        allow_blank=True,
        help_text="`nextCursor` of the page before, instead of `page`",
    )
    count = serializers.BooleanField(
        required=False, help_text="whether to say how many there are; unless it is given, pages behind a cursor do not"
    )
    ordering = OrderingField(
        "-createdAt",
        createdAt="created_at",
        startedAt=F("started_at").asc(nulls_last=True),
        name="name",
        status="state",
        framework="framework",
        owner="owner__username",
        priority="priority",
        worldSize="world_size",
        step=F("progress__step").asc(nulls_last=True),
        loss=F("progress__loss").asc(nulls_last=True),
    )


class OpenFinding(serializers.Serializer):
    code = serializers.CharField()
    level = serializers.ChoiceField(LEVELS)
    message = serializers.CharField()


class TaskBrief(serializers.Serializer):
    taskId = serializers.CharField()
    taskName = serializers.CharField()
    status = serializers.ChoiceField(STATES)
    reason = Reason(allow_null=True)
    framework = serializers.CharField()
    distributed = serializers.BooleanField()
    nodeCount = serializers.IntegerField()
    totalGpus = serializers.IntegerField()
    worldSize = serializers.IntegerField()
    masterNode = serializers.CharField()
    projectId = serializers.CharField()
    owner = serializers.CharField()
    attempt = serializers.IntegerField(help_text="number of the newest attempt; 0 before the first")
    maxRestarts = serializers.IntegerField()
    priority = serializers.IntegerField()
    priorityClass = serializers.ChoiceField(PRIORITY_CLASSES)
    preemptible = serializers.BooleanField(help_text="gives way to tasks of a higher class")
    borrowed = serializers.BooleanField(help_text="runs beyond what its project is guaranteed, so it gives way, too")
    paused = serializers.BooleanField(help_text="somebody asked it to pause; its status is queued once it rests")
    createdAt = serializers.DateTimeField()
    startedAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)
    step = serializers.IntegerField(allow_null=True)
    totalSteps = serializers.IntegerField(allow_null=True, help_text="null: the script has not said")
    estimatedEndAt = serializers.DateTimeField(
        allow_null=True,
        help_text="of its last step, by the script's progress bar or the pace; null: not running, or not known",
    )
    loss = serializers.FloatField(allow_null=True)
    lossNotFinite = serializers.BooleanField(help_text="the newest loss is NaN or infinite; `loss` is null")
    finding = OpenFinding(allow_null=True, help_text="the worst that is wrong with it while it goes on")
    allowedActions = serializers.ListField(
        child=serializers.ChoiceField(ACTIONS), help_text="what you may do with it now; nothing with the role viewer"
    )


class TaskBriefPage(serializers.Serializer):
    """A page of tasks. `page` is null where it was requested by a cursor, `total` where no total was requested."""

    items = TaskBrief(many=True)
    total = serializers.IntegerField(allow_null=True, help_text="at most 5,000")
    totalIsExact = serializers.BooleanField(allow_null=True, help_text="false: there are more than `total`")
    page = serializers.IntegerField(allow_null=True)
    pageSize = serializers.IntegerField()
    nextCursor = serializers.CharField(
        allow_null=True, help_text="null: nothing follows, or it is in the order of what changes (`step`, `loss`)"
    )


class TaskNode(serializers.Serializer):
    nodeRank = serializers.IntegerField()
    environmentId = serializers.CharField(allow_null=True, help_text="null = the environment was removed")
    name = serializers.CharField()
    zone = serializers.CharField()
    gpuType = serializers.CharField()
    processes = serializers.IntegerField()
    emulated = serializers.BooleanField(help_text="CPU processes stand in for the GPUs")
    ranks = serializers.ListField(child=serializers.IntegerField())
    runsIn = RunsIn(
        allow_null=True, help_text="of the newest attempt, or as planned before the first; null: only one way"
    )


class TaskRank(serializers.Serializer):
    rank = serializers.IntegerField()
    localRank = serializers.IntegerField()
    nodeRank = serializers.IntegerField()
    device = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField([(state, state) for state in ("waiting", "running", "exited")])
    pid = serializers.IntegerField(allow_null=True)
    exitCode = serializers.IntegerField(allow_null=True, help_text="negative: killed by that signal")
    ending = serializers.ChoiceField(
        [(ending, ending) for ending in ("done", "failed", "after", "ended")], allow_null=True,
        help_text="failed: before all others; after: once another had failed; ended: by the platform's signal",
    )  # fmt: skip


class TaskAttempt(serializers.Serializer):
    number = serializers.IntegerField()
    masterPort = serializers.IntegerField()
    outcome = Reason(allow_null=True, help_text="null while it goes on")
    failedRank = serializers.IntegerField(allow_null=True, help_text="the rank that failed first, where one did")
    resumeFrom = serializers.CharField(allow_null=True)
    createdAt = serializers.DateTimeField()
    runningAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)


class AwayNode(serializers.Serializer):
    environmentId = serializers.CharField()
    name = serializers.CharField()
    status = serializers.CharField(help_text="free, held by another task, or why it cannot be used")
    taskId = serializers.CharField(allow_null=True, help_text="who has it")


class TaskElastic(serializers.Serializer):
    """How many nodes an elastic task may run on, and how many it runs on."""

    minNodes = serializers.IntegerField()
    maxNodes = serializers.IntegerField()
    nodes = serializers.IntegerField(help_text="now")
    sizes = serializers.ListField(child=serializers.IntegerField(), help_text="that keep the global batch")
    globalBatchSize = serializers.IntegerField(allow_null=True, help_text="sequences of a step; null: not known")
    accumulationSteps = serializers.IntegerField(allow_null=True, help_text="micro steps of a step now")
    largest = serializers.IntegerField(help_text="on how many it could go on now")
    resizing = serializers.BooleanField(help_text="it was asked to save and go on with another size")
    away = AwayNode(many=True)


class ParameterItem(serializers.Serializer):
    name = serializers.CharField()
    value = serializers.CharField()
    number = serializers.FloatField(allow_null=True, help_text="the value, if it is a number")
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="`request`, or the name of the tracker that the script told"
    )


class TaskPredecessorItem(serializers.Serializer):
    """A task that had, or has, to end before this one starts."""

    taskId = serializers.CharField()
    name = serializers.CharField(help_text="empty: it was deleted")
    status = serializers.ChoiceField(STATES, allow_null=True, help_text="null: it was deleted")
    on = serializers.ChoiceField(["succeeded", "failed", "ended"], help_text="how it has to end")
    checkpoint = serializers.ChoiceField(["newest", "best"])
    metAt = serializers.DateTimeField(
        allow_null=True, help_text="since when nothing waits for it; null: it is waited for"
    )


class TaskDetail(TaskBrief):
    datasetId = serializers.CharField(allow_null=True, help_text="null: the script reads none of ours")
    datasetVersionId = serializers.CharField(allow_null=True)
    modelId = serializers.CharField(allow_null=True)
    datasetName = serializers.CharField(allow_null=True)
    datasetVersionName = serializers.CharField(allow_null=True)
    modelName = serializers.CharField(allow_null=True)
    preflightId = serializers.CharField(allow_null=True, help_text="of the pre-flight test that went before it")
    drillId = serializers.CharField(allow_null=True, help_text="of the newest rehearsal of its restart")
    summary = TaskSummary()
    warnings = WarningItem(many=True)
    proposal = TaskProposal(allow_null=True, help_text="null: nothing was left empty")
    elastic = TaskElastic(allow_null=True, help_text="null: it runs on all of its nodes or not at all")
    batch = EffectiveBatch(allow_null=True, help_text="null: only the user's own script knows")
    projectName = serializers.CharField()
    after = TaskPredecessorItem(many=True, help_text="tasks that have to end before it starts")
    select = serializers.JSONField(
        allow_null=True, help_text="the capacity that was asked for; null: named environments"
    )
    minRunSeconds = serializers.IntegerField(help_text="so long it is not preempted once it has its environments")
    maxRunSeconds = serializers.IntegerField(allow_null=True, help_text="null: it runs as long as it takes")
    nodes = TaskNode(many=True, help_text="none while capacity is yet to be chosen")
    ranks = TaskRank(many=True)
    attempts = TaskAttempt(many=True)
    request = serializers.JSONField()
    parameters = ParameterItem(many=True, help_text="what its script was configured with, by name")
    tags = serializers.ListField(child=serializers.CharField(), help_text="`changeRun` changes them")
    note = serializers.CharField(help_text="Markdown")
    archivedAt = serializers.DateTimeField(allow_null=True, help_text="null: lists of runs contain it")


class FindingPlace(serializers.Serializer):
    rank = serializers.IntegerField(allow_null=True)
    nodeRank = serializers.IntegerField(allow_null=True)
    node = serializers.CharField(help_text="its name; empty: not of one node")


class FindingEvidence(serializers.Serializer):
    message = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField(), help_text="as they were printed: a log, a stack")
    where = FindingPlace()


class FindingAction(serializers.Serializer):
    code = serializers.ChoiceField(ACTION_CODES)
    label = serializers.CharField()  # type: ignore[assignment]
    hint = serializers.CharField(help_text="what follows from it")
    params = serializers.DictField(child=serializers.JSONField(), help_text="what it takes")
    allowed = serializers.BooleanField(help_text="you may do it, and it is possible now")


class TaskFinding(serializers.Serializer):
    """A finding about a task, present or past."""

    code = serializers.CharField()
    level = serializers.ChoiceField(LEVELS)
    message = serializers.CharField()
    hint = serializers.CharField(help_text="what to do")
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="null: it goes on, or did to the attempt's end")
    attempt = serializers.IntegerField(help_text="0: before the first")
    where = FindingPlace(many=True)
    evidence = FindingEvidence(many=True)
    actions = FindingAction(many=True)


class TaskResumePoint(serializers.Serializer):
    """The checkpoint from which the next attempt, or a retry, would resume."""

    step = serializers.IntegerField(allow_null=True, help_text="of the newest checkpoint; null: there is none")
    savedAt = serializers.DateTimeField(allow_null=True)
    attempt = serializers.IntegerField(allow_null=True, help_text="which saved it last")
    path = serializers.CharField(help_text="of the checkpoint; empty: there is none")
    stepsLost = serializers.IntegerField(allow_null=True, help_text="trained since then; null: not known")
    resumes = serializers.BooleanField(help_text="false: nothing tells the script to resume (entrypoint.resume)")
    secondsLost = serializers.FloatField(
        allow_null=True, help_text="of training, with each restart, where the script begins anew"
    )
    message = serializers.CharField(help_text="all of it as a sentence")


class TaskDiagnosis(serializers.Serializer):
    taskId = serializers.CharField()
    status = serializers.ChoiceField(STATES)
    healthy = serializers.BooleanField(help_text="nothing is wrong; waiting for one's turn is not")
    summary = serializers.CharField(help_text="how it is, in one line")
    findings = TaskFinding(many=True, help_text="what goes on first, the worst and newest of it first")
    resumePoint = TaskResumePoint(allow_null=True, help_text="null: nothing was trained, or all of it")


class CodeChoice(serializers.ChoiceField):
    """Which code to run. snapshot: the code that the task ran; current: its source as it is now; auto: the source if it
    has changed."""

    def __init__(self) -> None:
        about = "of a task that has ended: its snapshot, its source as it is now, or the source if it has changed"
        super().__init__(choices=CODE_CHOICES, required=False, default=DEFAULT_RETRY_CODE, help_text=about)


class TaskRestartRequest(serializers.Serializer):
    leaveOut = serializers.ListField(
        source="leave_out", child=KeyField(), max_length=4096, required=False, default=list,
        help_text="environments of the task to do without",
    )  # fmt: skip
    useSpares = serializers.BooleanField(
        source="use_spares", required=False, default=False, help_text="free spares take their places"
    )
    code = CodeChoice()


class TaskRetryRequest(serializers.Serializer):
    code = CodeChoice()
    snapshot = serializers.CharField(
        required=False, allow_null=True, default=None, min_length=8, max_length=64,
        help_text="the id of another snapshot of the project, to be run in place of what `code` says",
    )  # fmt: skip


class FrameworkRecommendRequest(serializers.Serializer):
    modelParameters = serializers.IntegerField(
        source="parameters", min_value=1, max_value=10**18, required=False, allow_null=True, default=None,
        help_text="number of weights; by default what the model says or its hyperparameters add up to",
    )  # fmt: skip
    modelId = KeyField(source="model_id", required=False, allow_null=True, default=None)
    environmentIds = serializers.ListField(
        source="environment_ids", child=serializers.CharField(max_length=100), max_length=4096
    )
    masterNode = KeyField(source="master", required=False, allow_null=True, default=None)
    hyperparameters = serializers.DictField(
        child=serializers.JSONField(allow_null=True), required=False, default=dict,
        help_text="as in a task's request: those of the model that differ from its defaults",
    )  # fmt: skip


class RejectedFramework(serializers.Serializer):
    framework = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    reasons = WarningItem(many=True)


class RecommendedFramework(RejectedFramework):
    strategy = serializers.DictField(child=serializers.IntegerField())
    options = serializers.DictField(child=serializers.JSONField())


class SceneBounds(serializers.Serializer):
    min = serializers.IntegerField()
    max = serializers.IntegerField(allow_null=True)


class SceneFramework(serializers.Serializer):
    framework = serializers.CharField(help_text="`single`: one machine, with any framework")
    label = serializers.CharField()  # type: ignore[assignment]


class Scene(serializers.Serializer):
    code = serializers.CharField()
    name = serializers.CharField()
    feature = serializers.CharField()
    nodes = SceneBounds()
    gpus = SceneBounds()
    frameworks = SceneFramework(many=True)
    fits = serializers.BooleanField(help_text="these environments")


class FrameworkRecommendation(serializers.Serializer):
    modelParameters = serializers.IntegerField()
    items = RecommendedFramework(many=True, help_text="best first")
    rejected = RejectedFramework(many=True)
    scenes = Scene(many=True, help_text="which framework usually goes with how many nodes and GPUs")


class TaskClone(serializers.Serializer):
    request = serializers.JSONField(help_text="the body of a create, ready to be edited")


class EventQuery(PageQuery):
    pageSize = serializers.IntegerField(min_value=1, max_value=200, default=100)
    after = serializers.IntegerField(
        min_value=0, max_value=MAX_INT8, default=0, help_text="only events with a higher id"
    )


class TaskEvent(serializers.Serializer):
    id = serializers.IntegerField()
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(
        [(kind, kind) for kind in ("state", "attempt", "script", "preflight", "drill", "finding")]
    )
    code = serializers.CharField()
    params = serializers.JSONField()
    message = serializers.CharField()
    hint = serializers.CharField()


class MetricQuery(serializers.Serializer):
    names = serializers.ListField(
        child=KeyField(allow_blank=True), max_length=100, required=False, help_text="may repeat"
    )
    attempt = serializers.IntegerField(min_value=1, max_value=MAX_INT4, required=False)
    rank = serializers.IntegerField(min_value=0, max_value=MAX_INT4, required=False)
    source = KeyField(  # type: ignore[assignment]  # a field's own attribute, which DRF takes out of the class
        max_length=20, required=False, help_text="`json`, `text`, `file`, or the name of a tracker"
    )
    after = serializers.IntegerField(
        min_value=0, max_value=MAX_INT8, default=0, help_text="`next` of the answer before"
    )
    limit = serializers.IntegerField(min_value=1, max_value=10_000, default=2000)


class MetricItem(serializers.Serializer):
    id = serializers.IntegerField()
    attempt = serializers.IntegerField()
    rank = serializers.IntegerField()
    step = serializers.IntegerField()
    at = serializers.DateTimeField()
    values = serializers.DictField(child=serializers.FloatField(allow_null=True))
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="`json` and `text` for printed lines, `file`, or the name of a tracker"
    )


class MetricList(serializers.Serializer):
    items = MetricItem(many=True)
    next = serializers.IntegerField(allow_null=True)


class MediaQuery(PageQuery):
    kind = serializers.ChoiceField(MEDIA_KINDS, required=False)
    name = KeyField(max_length=200, required=False)
    ordering = OrderingField("-step", step="step", name="name", at="at")


class MediaItem(serializers.Serializer):
    attempt = serializers.IntegerField()
    rank = serializers.IntegerField()
    kind = serializers.ChoiceField(MEDIA_KINDS)
    name = serializers.CharField()
    step = serializers.IntegerField()
    path = serializers.CharField(help_text="of the file in the task's outputs")
    source = serializers.CharField(help_text="name of the tracker")  # type: ignore[assignment]
    at = serializers.DateTimeField()


class CheckpointQuery(PageQuery):
    ordering = OrderingField("-step", step="step", at="at")


class CheckpointItem(serializers.Serializer):
    attempt = serializers.IntegerField()
    step = serializers.IntegerField()
    path = serializers.CharField()
    sizeBytes = serializers.IntegerField(allow_null=True)
    valLoss = serializers.FloatField(allow_null=True, help_text="as it was saved with, or reported at its step")
    at = serializers.DateTimeField()
    source = serializers.ChoiceField(  # type: ignore[assignment]
        ["script", "runner"], help_text="runner: it was found, not announced"
    )
    layout = serializers.CharField(help_text="of a found one, whose it is: transformers, lightning, torch, dcp, …")
    newest = serializers.BooleanField(help_text="the newest that training can go on from")
    best = serializers.BooleanField(
        help_text="the one that the script holds for the best, or by the validation's loss, accuracy or score"
    )
    bestBy = serializers.CharField(help_text="of the best one: the name of the value that says so")
    complete = serializers.BooleanField(help_text="false: parts of it are missing, as far as the nodes say")
    nodes = serializers.ListField(
        child=serializers.CharField(), help_text="that have it, or a part of it; empty: not known"
    )
    note = serializers.CharField(help_text="what is missing of it; empty: nothing, as far as is known")


class PlanQuery(serializers.Serializer):
    attempt = serializers.IntegerField(
        min_value=1, max_value=MAX_INT4, required=False, help_text="the newest by default"
    )


class TaskPlan(serializers.Serializer):
    attempt = serializers.IntegerField()
    files = NamedText(many=True)
    artifacts = EngineArtifact(many=True)


class ScriptsQuery(serializers.Serializer):
    target = serializers.CharField(default="shell", max_length=40, help_text=" | ".join(TARGETS))
    masterPort = serializers.IntegerField(
        source="master_port",
        min_value=MASTER_PORTS[0],
        max_value=MASTER_PORTS[-1],
        required=False,
        help_text="another port for rank 0",
    )


class LogQuery(serializers.Serializer):
    rank = KeyField(default="0", help_text="a rank, or `all`")
    attempt = serializers.IntegerField(
        min_value=1, max_value=MAX_INT4, required=False, help_text="the newest by default"
    )
    search = serializers.CharField(
        max_length=200, default="", allow_blank=True, trim_whitespace=False, help_text="in upper or lower case"
    )
    regex = serializers.BooleanField(default=False, help_text="`search` is a regular expression, as RE2 reads it")
    level = serializers.ChoiceField(
        LOG_LEVELS, required=False, help_text="this one and graver ones; lines that say none belong to the line above"
    )
    since = DateTime(required=False, help_text="lines printed then or later; without a time: that of the line above")
    until = DateTime(required=False, help_text="lines printed then or before")
    cursor = serializers.CharField(
        max_length=100_000, required=False, allow_blank=True, help_text="`cursor` of the answer before"
    )
    limit = serializers.IntegerField(min_value=1, max_value=5000, default=500)
    tail = serializers.BooleanField(default=False, help_text="without a cursor: the newest lines")


class LogLine(serializers.Serializer):
    """A line of a log. `level` and `time` are left out where unknown, and `open` where the line is complete."""

    rank = serializers.IntegerField(required=False, help_text="with rank=all")
    offset = serializers.IntegerField(help_text="in bytes")
    text = serializers.CharField()
    level = serializers.ChoiceField(LOG_LEVELS, required=False)
    time = serializers.DateTimeField(required=False)
    open = serializers.BooleanField(
        required=False,
        help_text="true: a progress bar, say, as it is now; the next line of its rank replaces it",
    )


class LogPage(serializers.Serializer):
    rank = serializers.CharField()
    attempt = serializers.IntegerField()
    lines = LogLine(many=True)
    cursor = serializers.CharField()
    end = serializers.BooleanField(help_text="nothing more just now")


class FirstErrorQuery(serializers.Serializer):
    rank = KeyField(default="all", help_text="a rank, or `all`")
    attempt = serializers.IntegerField(
        min_value=1, max_value=MAX_INT4, required=False, help_text="the newest by default"
    )


class FirstErrorLine(LogLine):
    rank = serializers.IntegerField()


class FirstError(serializers.Serializer):
    """The first line that reports an error. Of a log that is longer than two windows, the middle is not searched."""

    attempt = serializers.IntegerField()
    found = FirstErrorLine(allow_null=True, help_text="null: no line says that it is an error")
    complete = serializers.BooleanField(help_text="false: an earlier error may be where nobody looked")
    windowBytes = serializers.IntegerField(help_text="looked through at each end of each log")
    ranksUnread = serializers.IntegerField(help_text="for which there was no time")


class LogDownloadQuery(serializers.Serializer):
    rank = KeyField(default="0", help_text="a rank, or `all`")
    attempt = serializers.IntegerField(min_value=1, max_value=MAX_INT4, required=False)


class StreamQuery(serializers.Serializer):
    logs = KeyField(default="none", help_text="`none`, `all` or a rank")
