"""Workers on bare-metal hosts: how they are grouped, what each is to run and what it reports.

    Project 1──* JoinToken   lets a host's agent register workers
       │ 1──* Group          a script, and its workers in the order of ranks
       │ 1──* Worker         one GPU slot of a host; has what it is to do
                   1──1 Report    its last report, written in batches
    Launch 1──* Order        an attempt as its workers were told it, and what each reported of its rank
    HostRun                  a dev environment's run as its host was told it, and what the host's agent reported
    Channel                  a stream into such a run that a process waits for

There are two clocks, each a single row. `Revision` numbers every change of what a worker is to do, in the order of
commits (its row is locked until then), so that a web process with a cache reads only what is newer. `Listening` has
since when heartbeats could be received: while the platform itself was down no worker counts as lost.
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id
from fermi.jobs.spec import DEFAULT_MASTER_PORT

NODE_LENGTH, GROUP_NAME_LENGTH = 63, 32
"""Together the length of an environment's name: `node (group)`."""


class JoinToken(models.Model):
    """A token by which hosts register workers. Only its hash is stored; the token itself is shown once."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "join"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="join_tokens")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class CommunicationBackend(models.TextChoices):
    NCCL = "nccl"
    GLOO = "gloo"


class Group(models.Model):
    """Workers that run a script together. `master_address`: a node's name. `world_size` None = as many processes as
    there are workers. `task`: the newest one that was started. `starts` counts them, so that of two users who start it
    at the same time one succeeds."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "group"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="worker_groups")
    name = models.CharField(max_length=GROUP_NAME_LENGTH)
    master_address = models.CharField(max_length=NODE_LENGTH, default="", blank=True)
    world_size = models.PositiveIntegerField(null=True, blank=True)
    master_port = models.PositiveIntegerField(default=DEFAULT_MASTER_PORT)
    backend = models.CharField(max_length=10, choices=CommunicationBackend, default=CommunicationBackend.NCCL)
    script = models.CharField(max_length=500, default="", blank=True)
    args = models.JSONField(default=list, blank=True)
    env = models.JSONField(default=dict, blank=True)
    secret_env = models.JSONField(default=dict, blank=True)  # variables, with the names of secrets
    max_restarts = models.PositiveIntegerField(default=3)
    task = models.ForeignKey("training.Task", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    starts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="group_name_per_project")]

    def __str__(self) -> str:
        return self.name


class Worker(models.Model):
    """A GPU slot of a host. `id` is `<node>-<number>`, the primary key, so that no worker is in two groups. `machine`
    and `incarnation`: the host, and the start of its present agent; `digest`: hash of its token. `desired` and `hosted`
    are what a heartbeat is answered with (a rank, and dev environments on its host), `generation` the revision at which
    these (or the token) changed. `held_by`: the dev environment that has its GPU."""

    id = models.CharField(primary_key=True, max_length=80)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="workers")
    node = models.CharField(max_length=NODE_LENGTH)
    number = models.PositiveIntegerField()
    group = models.ForeignKey(Group, on_delete=models.SET_NULL, null=True, blank=True, related_name="workers")
    environment = models.ForeignKey(
        "clusters.DevEnvironment", on_delete=models.SET_NULL, null=True, blank=True, related_name="workers"
    )
    gpu = models.PositiveIntegerField(null=True, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    machine = models.CharField(max_length=100)
    incarnation = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    generation = models.PositiveBigIntegerField(default=0, db_index=True)
    desired = models.JSONField(default=dict, blank=True)
    hosted = models.JSONField(default=dict, blank=True)
    held_by = models.CharField(max_length=40, default="", blank=True, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "number"], name="one_worker_per_number")]

    def __str__(self) -> str:
        return self.id


class Report(models.Model):
    """The newest heartbeat. `sequence` counts within an incarnation: an older one that another web process stores late
    changes nothing. `applied`: the newest generation the worker has acted on."""

    worker = models.OneToOneField(Worker, on_delete=models.CASCADE, primary_key=True, related_name="report")
    at = models.DateTimeField(null=True, blank=True, db_index=True)
    incarnation = models.CharField(max_length=64, default="")
    sequence = models.BigIntegerField(default=-1)
    applied = models.BigIntegerField(default=0)
    process = models.JSONField(default=dict, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    pulse = models.JSONField(null=True, blank=True)  # of the rank of `process`


class Launch(models.Model):
    """An attempt that workers run. `stopped` may precede the orders: then there will be none. `forgotten`: only which
    worker had which rank is kept, for logs that come late. `files`: the same for all workers."""

    name = models.CharField(primary_key=True, max_length=80)
    task = models.CharField(max_length=60, db_index=True)
    attempt = models.PositiveIntegerField()
    files = models.JSONField(default=dict)
    stopped = models.BooleanField(default=False)
    grace_seconds = models.FloatField(null=True)
    kill_at = models.FloatField(null=True)  # unix seconds
    forgotten = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)


class Order(models.Model):
    """One rank for one worker, and what that worker last reported of it. `worker` is an id and no foreign key: the
    order is kept when the worker is deleted. `machine`: the host it was given to."""

    launch = models.ForeignKey(Launch, on_delete=models.CASCADE, related_name="orders")
    worker = models.CharField(max_length=80, db_index=True)
    machine = models.CharField(max_length=100)
    rank = models.PositiveIntegerField()
    node_rank = models.PositiveIntegerField()
    node = models.CharField(max_length=100)
    digest = models.CharField(max_length=80)
    body = models.JSONField(default=dict)

    state = models.CharField(max_length=10, default="ordered")
    pid = models.PositiveIntegerField(null=True)
    exit_code = models.IntegerField(null=True)
    ended_at = models.FloatField(null=True)  # unix seconds, by the worker's clock
    left = models.BooleanField(null=True)
    asked = models.BooleanField(default=False)
    still_since = models.FloatField(null=True)
    cause = models.JSONField(default=dict)
    error = models.JSONField(null=True)
    stalled = models.JSONField(null=True)
    kill = models.JSONField(null=True)
    course = models.JSONField(null=True)  # `reported.course`: when its rank began, how far it had come when it ended
    incarnation = models.CharField(max_length=64, default="")
    sequence = models.BigIntegerField(default=-1)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.UniqueConstraint(fields=["launch", "worker"], name="one_order_per_worker"),
            models.UniqueConstraint(fields=["launch", "rank"], name="one_order_per_rank"),
        ]


class HostRun(models.Model):
    """The newest run of a dev environment on a host: `worker` carries its orders, `machine` is the host it was given
    to; both empty if it was stopped before it was ordered. `removing`: all of the environment is to be deleted; `gone`:
    its host reported that it is. `said`: the status as its host reported it. Ids and no foreign keys: it is kept when
    workers are deleted."""

    name = models.CharField(primary_key=True, max_length=80)
    environment = models.CharField(max_length=40, unique=True)
    number = models.PositiveIntegerField()
    worker = models.CharField(max_length=80, default="", blank=True, db_index=True)
    node = models.CharField(max_length=NODE_LENGTH, default="", blank=True)
    machine = models.CharField(max_length=100, default="", blank=True)
    body = models.JSONField(default=dict)
    stopped = models.BooleanField(default=False)
    grace_seconds = models.FloatField(null=True)
    removing = models.BooleanField(default=False)
    gone = models.BooleanField(default=False)
    said = models.JSONField(null=True, blank=True)
    incarnation = models.CharField(max_length=64, default="")
    sequence = models.BigIntegerField(default=-1)
    created_at = models.DateTimeField(auto_now_add=True)


class Channel(models.Model):
    """A stream that a process waits for. `id` is a secret for one connection; `address`: where the process listens."""

    id = models.CharField(primary_key=True, max_length=64)
    worker = models.CharField(max_length=80, db_index=True)
    run = models.CharField(max_length=80)
    address = models.CharField(max_length=100)
    until = models.DateTimeField()


class Revision(models.Model):
    """The number of the last change; see the module. One row, with the key 1."""

    value = models.PositiveBigIntegerField(default=0)


class Listening(models.Model):
    """Since when heartbeats could be received; see the module. One row, with the key 1. `heard_at`: when a web process
    last recorded that it listens."""

    since = models.DateTimeField()
    heard_at = models.DateTimeField()
