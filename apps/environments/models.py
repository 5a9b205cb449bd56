"""Dev environments that the platform manages: templates, lifecycles and runs.

DevEnvironment 1──1 Hosted   its life: the one writer of its state is `transitions`
      │ 1──* Event           what happened to it, as its page tells
      │ 1──* Gpu             held on a host whose engine gives GPUs out by index
      │ 1──* Run             one life of its processes; kept when the environment is gone, for what it cost
DevEnvironment 1──1 Standby  the process that stands by in it, as it was seen last
DevEnvironment 1──* Look     what its interpreters have installed, as it was seen last
      │ 1──* Installation    packages that a user had installed into it
Template ┄┄* Hosted          what it was made from, as it was then, stands in `spec`
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.clusters.models import EnvironmentKind
from apps.common.ids import new_id
from apps.common.pass_claims import PassClaim


class Template(models.Model):
    """What an environment can be created from. `project` None: in the catalogue for every project."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "template"))
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, null=True, blank=True, related_name="environment_templates"
    )
    name = models.CharField(max_length=100)
    description = models.TextField(default="", blank=True)
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    zone = models.ForeignKey(
        "clusters.AvailabilityZone", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    kind = models.CharField(max_length=20, choices=EnvironmentKind, default=EnvironmentKind.JUPYTER)
    image = models.CharField(max_length=200, default="", blank=True)
    packages = models.JSONField(default=list, blank=True)
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    gpu_count = models.PositiveIntegerField(default=0)
    emulated = models.BooleanField(default=False)
    cpu_cores = models.PositiveIntegerField(default=1)
    memory_gb = models.PositiveIntegerField(default=1)
    shared_memory_gb = models.PositiveIntegerField(default=0)
    disk_gb = models.PositiveIntegerField(default=0)
    ports = models.JSONField(default=list, blank=True)  # [{"name": …, "port": …}]
    env = models.JSONField(default=dict, blank=True)
    secret_env = models.JSONField(default=dict, blank=True)
    start_script = models.TextField(default="", blank=True)
    idle_stop_minutes = models.PositiveIntegerField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="template_name_per_project"),
            models.UniqueConstraint(fields=["name"], condition=Q(project=None), name="template_name_in_catalogue"),
        ]

    def __str__(self) -> str:
        return self.name


class Hosted(models.Model):
    """The lifecycle of a managed environment.

    wanted     the desired state: running, stopped or deleted; `asked_code`, `asked_params`: why
    state      the present state; `due_at` and `claimed_at`, as a task's: `apps.common.pass_claims`
    run        number of the present run; 0 before the first. `asked_run`: the first run since a user asked for one;
               later ones are retries. `restart_run`: the run that a user asked to restart
    spec       the engine's specification without its run. `seen`: what was last observed of the run
    purpose    what the platform created it for by itself (`tensorboard`); empty: a user's own. When it is idle it is
               deleted, and its disk with it
    task       the task it was created for, and `afterwards` (delete, stop, keep) what happens when that ends
    """

    environment = models.OneToOneField(
        "clusters.DevEnvironment", on_delete=models.CASCADE, primary_key=True, related_name="hosted"
    )
    template = models.ForeignKey(Template, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    spec = models.JSONField()
    wanted = models.CharField(max_length=10, default="running")
    asked_code = models.CharField(max_length=40, default="", blank=True)
    asked_params = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=10, default="creating", db_index=True)
    state_since = models.DateTimeField()
    reason = models.CharField(max_length=40, default="", blank=True)
    reason_params = models.JSONField(default=dict, blank=True)
    run = models.PositiveIntegerField(default=0)
    asked_run = models.PositiveIntegerField(default=1)
    restart_run = models.PositiveIntegerField(default=0)
    seen = models.JSONField(default=dict, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    idle_stop_minutes = models.PositiveIntegerField(null=True, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)  # the last activity
    warned_at = models.DateTimeField(null=True, blank=True)  # its owner was warned of the idle stop
    keep_until = models.DateTimeField(null=True, blank=True)
    purpose = models.CharField(max_length=20, default="", db_default="", blank=True)
    task = models.CharField(max_length=40, default="", blank=True, db_index=True)
    afterwards = models.CharField(max_length=10, default="", blank=True)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    request_hash = models.CharField(max_length=64, default="", blank=True)

    claim: PassClaim | None = None
    """Of the pass that loaded it."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["made_by", "idempotency_key"], name="one_environment_per_key"),
        ]

    def __str__(self) -> str:
        return self.environment_id


class Event(models.Model):
    """An event of an environment. `code` has a text in `fermi.messages`."""

    hosted = models.ForeignKey(Hosted, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    code = models.CharField(max_length=60)
    params = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["pk"]


class Gpu(models.Model):
    """A GPU of a host, held by an environment; the constraint makes it impossible that two hold it. `host`: a node's
    name; empty: the only machine of its cluster."""

    hosted = models.ForeignKey(Hosted, on_delete=models.CASCADE, related_name="gpus")
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="+")
    host = models.CharField(max_length=200, default="", blank=True)
    number = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "host", "number"], name="one_holder_per_gpu")]


class Run(models.Model):
    """One run of an environment's processes, kept for its cost. `environment` is an id and no foreign key. `sent_at`:
    when the engine was told to start it."""

    environment = models.CharField(max_length=40)
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    zone = models.CharField(max_length=40, default="", blank=True)
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    gpu_count = models.PositiveIntegerField(default=0)
    rendered = models.JSONField(default=dict, blank=True)  # what its engine was sent
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=40, default="", blank=True)
    outcome_params = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="one_run_per_number")]
        indexes = [models.Index(fields=["project", "created_at"])]


class Inquiry(models.Model):
    """Something that is asked inside of an environment, answered in its life `life` (see `packages.surveys.get_lives`).
    `error`: why nothing was found, {"code": …, params…}. `due_at` is schedule and claim in one; None: nothing is to be
    asked."""

    GOES_WITH_ENVIRONMENT = True

    life = models.CharField(max_length=200, default="", blank=True)
    error = models.JSONField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        abstract = True


class Look(Inquiry):
    """What one interpreter of an environment has installed, stored so that pages need not enter it. `python`: as a task
    names it; empty: the environment's default. `wanted`: modules to look for. `found`: the packages, as
    `fermi.planning.packages` stores them."""

    environment = models.ForeignKey("clusters.DevEnvironment", on_delete=models.CASCADE, related_name="looks")
    python = models.CharField(max_length=500, default="", blank=True)
    wanted = models.JSONField(default=list, blank=True)
    found = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["environment", "python"], name="one_look_per_interpreter")]


class MemoryLook(Inquiry):
    """Who holds memory in an environment whose engine does not report it, stored so that pages need not enter it.
    `found`: as `fermi.engines.memory_holders.parse_holders` returns it."""

    environment = models.OneToOneField(
        "clusters.DevEnvironment", on_delete=models.CASCADE, primary_key=True, related_name="memory_look"
    )
    found = models.JSONField(null=True, blank=True)


class Standby(Inquiry):
    """The standby process in an environment, with the training stack imported, as it was last observed: `state`, and
    `memory` in bytes. `until`: when it ends by itself."""

    environment = models.OneToOneField(
        "clusters.DevEnvironment", on_delete=models.CASCADE, primary_key=True, related_name="standby"
    )
    state = models.CharField(max_length=10, default="off")
    memory = models.BigIntegerField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)


class InstallationState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Installation(models.Model):
    """Packages that a user had installed into an environment. `together`: id of the request, which may name several
    environments. `output`: the end of pip's output; `exit`: its exit code. `error`: why it could not be run, {"code":
    …, params…}. `due_at` is schedule and claim in one; None: it has ended."""

    GOES_WITH_ENVIRONMENT = True

    together = models.CharField(max_length=40, db_index=True)
    environment = models.ForeignKey("clusters.DevEnvironment", on_delete=models.CASCADE, related_name="installations")
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    packages = models.JSONField()
    python = models.CharField(max_length=500, default="", blank=True)
    state = models.CharField(max_length=10, choices=InstallationState, default=InstallationState.WAITING)
    output = models.TextField(default="", blank=True)
    exit = models.IntegerField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
