"""The models of a training task and of everything known about it. The database is the only truth; messages are hints.

Task 1──* Node        the environments it was made from, by node rank, as they were when it was submitted
  │ 1──* Attempt      one gang of processes; restarting = a higher number
  │ 1──* Event        what happened, once each, in order
  │ 1──* Finding      what was found to be wrong while an attempt ran
  │ 1──* MetricPoint  a line of numbers a rank printed
  │ 1──* MetricSummary  what the curve of one name comes to, by which tasks are compared and sorted
  │ 1──* MetricBlock  the points of one curve again, packed, so that many long curves are read at once
  │ 1──* LogPattern   shapes of printed lines that became metric points
  │ 1──* Checkpoint   what a restart can resume from
  ├ 1──* TaskParameter  what its script was configured with
  ├ 1──* TaskMedia    images, texts, tables and histograms that its script logged, as files in its outputs
  ├ 1──* TrackerRun   runs of W&B that its script began, and what became of their files
  ├ 1──* AttemptFacts  what a node of an attempt ran with: interpreter, packages and variables (FactSet), machine
  ├ 1──* LogCursor    how far each rank's log has been read into the tables above
  ├ 1──* TraceExport  parts of its trace that are still to be sent, where tasks are traced
  ├ 1──* TaskPredecessor  tasks that have to end before it starts
  ├ 1──1 Preflight    the pre-flight test that goes before it; itself run by a task of the kind `preflight`
  └ 1──* Drill        rehearsals of its restart; each is run by a task of the kind `drill`
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models import F, Func

from apps.common.ids import new_id
from apps.common.pass_claims import PassClaim
from apps.training.states import FINAL_STATES, TaskKind, TaskState
from fermi.runner.run_names import build_run_name


class TaskKindManager(models.Manager["Task"]):
    """Manager of the tasks of one kind."""

    def __init__(self, kind: TaskKind) -> None:
        """Limit the manager to tasks of `kind`."""
        super().__init__()
        self._kind = kind

    def get_queryset(self) -> models.QuerySet["Task"]:
        return super().get_queryset().filter(kind=self._kind)


_NEWEST_FIRST, _LIST_COLUMNS = ("-created_at", "id"), ("state", "framework", "owner", "name")


class Task(models.Model):
    """A training task, a pre-flight run or a drill run, from its request to its last attempt.

    `spec` is the snapshot that the task is run from (`fermi.jobs.spec.JobSpec` without its attempt); everything done
    later is derived from it. `request` is what the user sent, kept to be shown and sent again. A task that runs a
    script of the user may need neither dataset nor model of the platform. `due_at`: when the reconciler processes it
    next; None once it is final. `claimed_at`: the claim of the pass that has the row now, or that died with it, and
    since when (`apps.common.pass_claims`). `deadline_at`: end of the time allowed for the current state.
    """

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "task"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="tasks", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tasks", db_index=False)
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.PROTECT, related_name="tasks", db_index=False)
    kind = models.CharField(max_length=20, choices=[(k, k) for k in TaskKind], default=TaskKind.TRAINING)
    name = models.CharField(max_length=100)
    framework = models.CharField(max_length=20)
    dataset_version = models.ForeignKey(
        "catalog.DatasetVersion", on_delete=models.PROTECT, null=True, blank=True, db_index=False
    )
    model = models.ForeignKey("catalog.Model", on_delete=models.PROTECT, null=True, blank=True, db_index=False)
    distributed = models.BooleanField(default=False)
    node_count = models.PositiveIntegerField()
    total_gpus = models.PositiveIntegerField()
    world_size = models.PositiveIntegerField()
    master = models.CharField(max_length=40)  # environment id
    priority = models.IntegerField(default=0)  # its class: `fermi.scheduler.snapshot.classify_priority`
    preemptible = models.BooleanField(default=False)
    min_run_seconds = models.PositiveIntegerField(default=0)
    max_run_seconds = models.PositiveIntegerField(null=True, blank=True)
    select = models.JSONField(null=True, blank=True)  # capacity instead of environments by name
    max_restarts = models.PositiveIntegerField(default=3)
    inside = models.BooleanField(
        default=False, db_default=False
    )  # ranks of it run in environments: `core.engine_access`
    request = models.JSONField()
    spec = models.JSONField()
    total_steps = models.BigIntegerField(null=True, blank=True)  # of the spec's hyperparameters, where lists find it
    summary = models.JSONField()
    warnings = models.JSONField(default=list)

    state = models.CharField(max_length=20, choices=[(s, s) for s in TaskState], default=TaskState.INITIALIZING)
    state_since = models.DateTimeField()
    reason = models.CharField(max_length=40, default="", blank=True)
    reason_params = models.JSONField(default=dict, blank=True)
    attempt = models.PositiveIntegerField(default=0)  # number of the newest attempt; 0 before the first
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    resize_requested_at = models.DateTimeField(null=True, blank=True)  # an elastic task has to take its best size
    # since when it is in the queue (it could start if it had its environments), and the place it was moved to
    in_line_at = models.DateTimeField(null=True, blank=True, db_index=True)
    place = models.FloatField(null=True, blank=True)
    # the environments that others were asked to give up for it: {"needs": […]}
    turn = models.JSONField(default=dict, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)  # a user paused it and has not resumed it
    preempted_at = models.DateTimeField(null=True, blank=True)  # it was asked to give way and still holds environments
    preempted_for = models.JSONField(default=dict, blank=True)  # {"task": …, "why": …}
    borrowed = models.BooleanField(default=False)  # it holds more than its project is guaranteed
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    # {"step": …, "loss": …}: the newest that rank 0 printed; `counted`: it prints none
    progress = models.JSONField(default=dict, blank=True)

    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    request_hash = models.CharField(max_length=64, default="", blank=True)
    trace = models.JSONField(
        default=dict, blank=True
    )  # how its request came, where tasks are traced: `core.trace_context`
    created_at = models.DateTimeField(db_index=True)
    started_at = models.DateTimeField(null=True, blank=True)  # first time running
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager()
    trainings = TaskKindManager(TaskKind.TRAINING)

    claim: PassClaim | None = None
    """Claim of the pass that loaded this object; None outside of a pass."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="one_task_per_idempotency_key"),
            models.CheckConstraint(
                condition=models.Q(due_at__isnull=False) | models.Q(state__in=sorted(FINAL_STATES)),
                name="active_tasks_are_due",
            ),
        ]
        # A pass writes a row twice, and each index with it. So columns of text have theirs here: with `db_index` they
        # would have a second one on PostgreSQL, for the beginnings of words.
        indexes = [
            models.Index(fields=["state"], name="training_task_state"),
            models.Index(fields=["cluster"], name="training_task_cluster"),
            models.Index(fields=["dataset_version"], name="training_task_dataset_version"),
            models.Index(fields=["model"], name="training_task_model"),
            models.Index(fields=["kind", "state", "ended_at"]),  # counts by state, and tasks that ended recently
            # Lists, newest first. The first two hold what is asked most, too, so that rows that do not match are not
            # read; searches have theirs in migration 0014.
            models.Index(fields=["kind", *_NEWEST_FIRST, "project", *_LIST_COLUMNS], name="training_task_newest_all"),
            models.Index(
                fields=["project", "kind", *_NEWEST_FIRST, *_LIST_COLUMNS], name="training_task_newest_project"
            ),
            models.Index(
                fields=["owner", "kind", *_NEWEST_FIRST, "project", "state"], name="training_task_newest_owner"
            ),
            models.Index(fields=["kind", "framework", *_NEWEST_FIRST], name="training_task_newest_framework"),
            models.Index(fields=["kind", "state", *_NEWEST_FIRST], name="training_task_newest_state"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Queue(models.Model):
    """State of the platform's one queue, as a single row. `due_at`: when the next scheduling pass is due; None while
    nothing waits. `claimed_at`: when the running pass began, or a pass that died; it is also that pass's claim, so that
    two passes never carry out decisions at the same time."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    due_at = models.DateTimeField(null=True, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)


class Watch(models.Model):
    """Which watcher processes are alive, as a single row (`apps.training.logs.sharding`). `members`: by watcher, the
    row version that it wrote last. `epoch`: number of this set of watchers. `version`: version of the row, for
    compare-and-set. `looked`: by watcher, when it began its last complete scan of all that it follows, in unix seconds.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.BigIntegerField(default=0)
    version = models.BigIntegerField(default=0)
    members = models.JSONField(default=dict)
    looked = models.JSONField(default=dict, db_default={})


class Node(models.Model):
    """One environment of a task. `environment` empties when the environment is deleted; the rest is a snapshot."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="nodes")
    node_rank = models.PositiveIntegerField()
    environment = models.ForeignKey("clusters.DevEnvironment", on_delete=models.SET_NULL, null=True)
    name = models.CharField(max_length=100)
    zone = models.CharField(max_length=100)
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    processes = models.PositiveIntegerField()

    class Meta:
        ordering = ["node_rank"]
        constraints = [models.UniqueConstraint(fields=["task", "node_rank"], name="one_node_per_rank")]
        indexes = [models.Index(fields=["zone"], name="training_node_zone")]


class Attempt(models.Model):
    """One gang of processes of a task. `outcome` is empty while its end is not known; `ended_at` is set once the engine
    has confirmed that nothing of it is left. Between the two it is being cancelled."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    master_port = models.PositiveIntegerField()
    resume_from = models.CharField(max_length=500, default="", blank=True)
    plan = models.JSONField(default=dict)  # what was rendered and submitted
    seen = models.JSONField(default=dict)  # last observation, for the page's rank grid
    seen_mark = models.CharField(
        max_length=24, default="", db_default="", blank=True
    )  # of it: `core.observation_store`
    outcome = models.CharField(max_length=40, default="", blank=True)
    outcome_params = models.JSONField(default=dict, blank=True)
    cause = models.CharField(max_length=16, default="", db_default="", blank=True)  # `core.outcomes`: key of its cause
    tracked = models.JSONField(default=dict, db_default={}, blank=True)  # what `core.tracked_values` came to
    created_at = models.DateTimeField()
    submitted_at = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="one_attempt_per_number")]
        indexes = [  # plans are long, so counts use these indexes
            models.Index(fields=["ended_at", "outcome", "cause", "task"]),
            models.Index(fields=["created_at", "task"]),
        ]

    @property
    def name(self) -> str:
        """Return the name by which the engine knows the attempt."""
        return build_run_name(self.task_id, self.number)


class Event(models.Model):
    """Something that happened to a task, shown to users and sent to live streams. `code` has a text in
    `fermi.messages`."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
    kind = models.CharField(max_length=20)  # state | attempt | script | preflight | drill | finding
    code = models.CharField(max_length=60)
    params = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["task", "id"])]


class TaskPredecessor(models.Model):
    """A task, `parent`, that has to end in the way `on` before `task` starts. `number`: its place in the request;
    `checkpoint`: which of the parent's checkpoints the task is given; `met_at`: since when the task waits for it no
    longer. `parent` is no foreign key: a task whose parent was deleted is ended by its own pass, which says so. At most
    `fermi.planning.request.MAX_AFTER` per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="predecessors", db_index=False)
    parent = models.CharField(max_length=40)
    number = models.PositiveSmallIntegerField()
    on = models.CharField(max_length=10)  # succeeded | failed | ended
    checkpoint = models.CharField(max_length=10)  # newest | best
    met_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["task", "parent"], name="one_predecessor_per_task")]
        indexes = [models.Index(fields=["parent", "met_at"], name="training_predecessor_parent")]

    def __str__(self) -> str:
        return f"{self.task_id} after {self.parent}"


class TracePart(models.TextChoices):
    """Parts of a task's trace that are exported separately."""

    CREATED = "created"
    STARTED = "started"
    ENDED = "ended"
    FINISHED = "finished"


class TraceExport(models.Model):
    """A complete part of a task's trace that waits to be exported. `due_at` is both schedule and claim; None: the part
    was dropped."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="trace_exports")
    attempt = models.PositiveIntegerField()
    part = models.CharField(max_length=10, choices=TracePart)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, db_index=True)
    dropped_at = models.DateTimeField(null=True)
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "attempt", "part"], name="one_export_per_part")]

    def __str__(self) -> str:
        return f"{self.task_id} {self.attempt} {self.part}"


class Finding(models.Model):
    """A problem found while an attempt ran, stored once per attempt, code and key (`fermi.diagnosis`). `until`: when it
    was resolved; None: it is open, or was at the attempt's end."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="findings")
    attempt = models.PositiveIntegerField()
    code = models.CharField(max_length=40)
    key = models.CharField(max_length=100, default="", blank=True)
    level = models.CharField(max_length=10)
    params = models.JSONField(default=dict)
    where = models.JSONField(default=list)
    evidence = models.JSONField(default=list)
    actions = models.JSONField(default=list)
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "attempt", "code", "key"], name="one_finding_per_key"),
        ]


class DiagnosisRules(models.Model):
    """A project's own rules for known errors, as TOML; they are applied before the platform's rules."""

    project = models.OneToOneField("accounts.Project", on_delete=models.CASCADE, primary_key=True, related_name="+")
    text = models.TextField(blank=True)
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    def __str__(self) -> str:
        return str(self.project_id)


class Preflight(models.Model):
    """A pre-flight test. `run` is the task that runs it: it has the same leases, attempts, deadlines and ends as any
    task, one process per node, and appears in no list of training tasks. `before`: the task whose first stage it is.
    `report`: the result of `fermi.preflight.verdict`, once the run has ended."""

    run = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="preflight")
    before = models.OneToOneField(Task, on_delete=models.CASCADE, null=True, related_name="stage")
    level = models.CharField(max_length=10)  # quick | full
    report = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return str(self.run_id)


class Drill(models.Model):
    """A rehearsal of a restart. `run` is the task that runs it: the same job with its own checkpoints, whose first
    attempt loses a rank. `task`: the task whose restart is rehearsed; None: the drill was made from a request that was
    not submitted. `stage`: it runs before the task's first attempt. `report`: the result of
    `fermi.jobs.drill.build_report`, once the run has ended."""

    run = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="drill")
    task = models.ForeignKey(Task, on_delete=models.CASCADE, null=True, related_name="drills")
    stage = models.BooleanField(default=False)
    report = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task"], condition=models.Q(stage=True), name="one_drill_before_a_task")
        ]

    def __str__(self) -> str:
        return str(self.run_id)


class MetricPoint(models.Model):
    """Numbers that a rank reported at a step. `values`: metric name -> number. `source`: who reported them (see
    `fermi.metrics.points`): `json` and `text` for printed lines, `file`, or the name of a tracker."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="metrics", db_index=False)
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    step = models.BigIntegerField()
    at = models.DateTimeField()
    values = models.JSONField()
    source = models.CharField(max_length=20, default="json", db_default="json")
    pattern = models.CharField(max_length=16, default="", db_default="", blank=True)  # of text: `LogPattern.key`

    class Meta:
        indexes = [models.Index(fields=["task", "id"])]


class MetricSummary(models.Model):
    """What the curve of one name comes to: over all finite values that the leading rank of a task reported, in all of
    its attempts, also those whose points were thinned out (`MetricPoint`). `count` is of the values; each other number
    is a value with the step at which it was reported first. At most `fermi.metrics.summaries.MAX_SUMMARIES` per
    task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="metric_summaries", db_index=False)
    name = models.CharField(max_length=200)
    count = models.BigIntegerField()
    last = models.FloatField()
    last_step = models.BigIntegerField()
    low = models.FloatField()
    low_step = models.BigIntegerField()
    high = models.FloatField()
    high_step = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "name"], name="one_summary_per_metric")]
        indexes = [
            models.Index(fields=["name", "last", "-id"], name="training_summary_last"),
            models.Index(fields=["name", "low", "-id"], name="training_summary_low"),
            models.Index(fields=["name", "high", "-id"], name="training_summary_high"),
        ]


class MetricBlock(models.Model):
    """Points of one name, as one source reported them in one attempt, copied from `MetricPoint` and packed
    (`core.metric_blocks`). Only of the lowest rank that reports the name. `number`: its place among the blocks of this
    curve. `count`: points, also those that were not finite. `last`: the last finite value; None: there is none.
    `cells`: some points as one (`fermi.metrics.downsampling`); `data`: all of them."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="metric_blocks", db_index=False)
    name = models.CharField(max_length=200)
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    source = models.CharField(max_length=20)
    pattern = models.CharField(max_length=16, default="", blank=True)
    number = models.PositiveIntegerField()
    count = models.PositiveIntegerField()
    not_finite = models.PositiveIntegerField(default=0)
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    first_time = models.FloatField()
    last_time = models.FloatField()
    last = models.FloatField(null=True)
    last_value_step = models.BigIntegerField(null=True)
    cells = models.BinaryField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["task", "name", "pattern", "rank", "attempt", "source", "number"],
                name="one_metric_block_per_number",
            )
        ]


class MetricBlockState(models.Model):
    """How far a task's points are copied into blocks. `until`: id of the newest copied point. `held`: ids up to it that
    are not copied yet, as thinning may replace them. `version` changes whenever stored points change: who has read
    points then copies none of them."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="metric_block_state")
    until = models.BigIntegerField(default=0)
    held = models.JSONField(default=list)
    version = models.PositiveIntegerField(default=0)


class LogPattern(models.Model):
    """A shape of printed lines that are points of curves (`fermi.metrics.text_patterns`). `line`: the line with names
    in braces; `fields`: original name -> {"name": shown name, empty where it is left out; "unit"}. Of a switched-off
    pattern no points are stored. At most `logs.text_metrics.MAX_PATTERNS` per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="log_patterns", db_index=False)
    key = models.CharField(max_length=16)
    line = models.CharField(max_length=300)
    example = models.CharField(max_length=300)
    fields = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "key"], name="one_log_pattern_per_key")]


MAX_INDEXED_LENGTH = 64
VALUE_BEGINNING = Func(
    F("value"), function="SUBSTR", template="%(function)s(%(expressions)s, 1, 64)", output_field=models.CharField()
)
"""What is indexed of a parameter's value: all of it may be longer than an index of PostgreSQL holds. The numbers are
literal, as SQLite uses no index on an expression that a query writes with parameters."""


class TaskParameter(models.Model):
    """A parameter that a task's script was configured with: from its request, or as it told a tracker. `number`: the
    value, if it is one. At most `fermi.metrics.parameters.MAX_PARAMETERS` per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="parameters", db_index=False)
    name = models.CharField(max_length=200)
    value = models.CharField(max_length=1000)
    number = models.FloatField(null=True)
    source = models.CharField(max_length=20)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "name"], name="one_value_per_parameter")]
        indexes = [
            models.Index(fields=["name", "number", "-id"], name="training_parameter_number"),
            models.Index("name", VALUE_BEGINNING, F("id").desc(), name="training_parameter_text"),
        ]


class TaskMedia(models.Model):
    """An image, a text, a table or a histogram that a task's script logged. `path`: of the file in the task's outputs.
    Rows are thinned, and at most `logs.ingest.MAX_MEDIA` per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="media", db_index=False)
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=200)
    step = models.BigIntegerField()
    path = models.CharField(max_length=500)
    source = models.CharField(max_length=20)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "kind", "name", "step"], name="one_medium_per_name_and_step")
        ]


class TrackerRun(models.Model):
    """A run that a task's script began at an experiment tracker (`fermi.metrics.tracker_runs`). A run that goes on in
    the next attempt is one row; offline, each folder is one. `is_offline`: no server knew of it when it began;
    `folder`: its files then, in the task's outputs. `sync_task`: the newest task that sends its files; `synced_at`:
    since when it is known that one of them has. At most `core.tracker_runs.MAX_RUNS` per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="tracker_runs", db_index=False)
    source = models.CharField(max_length=20)
    run_id = models.CharField(max_length=128)
    entity = models.CharField(max_length=200, blank=True)
    project = models.CharField(max_length=128, blank=True)
    name = models.CharField(max_length=200, blank=True)
    url = models.CharField(max_length=500, blank=True)
    folder = models.CharField(max_length=250, blank=True)
    is_offline = models.BooleanField(default=False)
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    at = models.DateTimeField()
    sync_task = models.ForeignKey(Task, on_delete=models.SET_NULL, null=True, blank=True, related_name="synced_runs")
    synced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["rank", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["task", "source", "project", "run_id", "folder"], name="one_row_per_tracker_run"
            )
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.run_id}"


class CheckpointSource(models.TextChoices):
    """Who said that there is a checkpoint: the script, or the runner that found it."""

    SCRIPT = "script"
    RUNNER = "runner"


class Checkpoint(models.Model):
    """A checkpoint of a task. `source`: `script`, which announced it, or `runner`, which found it; `layout`: of a found
    one, what it is (`fermi.runner.checkpoint_layouts`); `nodes`: those that have it, or a part of it
    (`core.checkpoint_nodes`), empty where that is not known; `is_complete`: nothing of it is missing, as far as is
    known."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveIntegerField()
    step = models.BigIntegerField()
    path = models.CharField(max_length=500)
    size_bytes = models.BigIntegerField(null=True)
    val_loss = models.FloatField(null=True)
    at = models.DateTimeField()
    source = models.CharField(max_length=10, default=CheckpointSource.SCRIPT, db_default=CheckpointSource.SCRIPT)
    layout = models.CharField(max_length=20, default="", db_default="", blank=True)
    nodes = models.JSONField(default=dict, db_default={}, blank=True)
    is_complete = models.BooleanField(default=True, db_default=True)

    class Meta:
        ordering = ["-step"]
        constraints = [models.UniqueConstraint(fields=["task", "path"], name="one_checkpoint_per_path")]


class FactSetKind(models.TextChoices):
    """What a set is of: version by package, or hash by variable."""

    PACKAGES = "packages"
    VARIABLES = "variables"


class FactSet(models.Model):
    """A set of packages or of variables, stored once however many nodes have it. `digest`: of its content
    (`fermi.metrics.facts.compute_digest`); `items`: version by name of a package; keyed hash by name of a variable,
    empty where the value may be a secret; `used_at`: when a node reported it last, to the hour."""

    digest = models.CharField(primary_key=True, max_length=64)
    kind = models.CharField(max_length=10, choices=FactSetKind)
    items = models.JSONField()
    used_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:12]}"


class AttemptFacts(models.Model):
    """What a node of an attempt ran with, as it reported it. `node`: its name then; `values`: single facts by name
    (`fermi.metrics.facts`)."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="facts", db_index=False)
    attempt = models.PositiveIntegerField()
    node_rank = models.PositiveIntegerField()
    node = models.CharField(max_length=100, blank=True)
    values = models.JSONField(default=dict)
    packages = models.ForeignKey(FactSet, on_delete=models.PROTECT, null=True, related_name="+")
    variables = models.ForeignKey(FactSet, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "attempt", "node_rank"], name="one_row_of_facts_per_node")
        ]


class LogCursor(models.Model):
    """Byte offset up to which a rank's log has been read into metrics, events and checkpoints. It advances in the
    transaction that stores them, so a crash neither loses nor doubles a point. `state`: what the reader needs to know
    of the bytes before the offset (see `logs.ingest`)."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="log_cursors")
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    offset = models.BigIntegerField(default=0)
    state = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "attempt", "rank"], name="one_cursor_per_rank")]
