"""Clusters, availability zones, dev environments, and leases of environments and ports."""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.clock import now
from apps.common.ids import new_id


class Cluster(models.Model):
    """An engine and its connection. `backend` is a name in `fermi.planning.plugins`; `connection` follows the schema of
    its `check` module and names secrets without containing any. `away_since`: the engine has not answered since then,
    and `away_why` (a code and its parameters) is the error."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "cluster"))
    name = models.CharField(max_length=100, unique=True)
    backend = models.CharField(max_length=20)
    connection = models.JSONField(default=dict, blank=True)
    away_since = models.DateTimeField(null=True, blank=True)
    away_why = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class AvailabilityZone(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "zone"))
    name = models.CharField(max_length=100, unique=True)

    def __str__(self) -> str:
        return self.name


class EnvironmentKind(models.TextChoices):
    JUPYTER = "jupyter"
    VSCODE = "vscode"
    CUSTOM = "custom"


class EnvironmentStatus(models.TextChoices):
    """Status of an environment; tasks run only in a running one. The last five are of environments that the platform
    creates (`apps.environments`)."""

    RUNNING = "running"
    STOPPED = "stopped"
    UNHEALTHY = "unhealthy"
    CREATING = "creating"
    STARTING = "starting"
    STOPPING = "stopping"
    FAILED = "failed"
    DELETED = "deleted"


class DevEnvironment(models.Model):
    """A running notebook or shell with its GPUs: one node of a distributed job.

    `emulated`: CPU processes on this machine stand in for the GPUs; marked as such wherever the environment is shown.
    `shared`: tasks of any project may run there; its own project manages it. `labels`: words that tasks can require.
    `discovered_as`: its key in the cluster if the engine listed it (`discovery`); empty if it was registered by hand.
    `gone_at`: since when the engine no longer lists it. `warm`: a process with the training stack imported waits in it;
    None: as its project sets it.
    """

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "env"))
    name = models.CharField(max_length=100)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="environments")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="environments")
    zone = models.ForeignKey(AvailabilityZone, on_delete=models.PROTECT, related_name="environments")
    kind = models.CharField(max_length=20, choices=EnvironmentKind, default=EnvironmentKind.CUSTOM)
    status = models.CharField(max_length=20, choices=EnvironmentStatus, default=EnvironmentStatus.RUNNING)
    cordoned = models.BooleanField(default=False)
    shared = models.BooleanField(default=False)
    warm = models.BooleanField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    image = models.CharField(max_length=200, default="", blank=True)
    stack = models.CharField(max_length=60, default="", blank=True)
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    gpu_count = models.PositiveIntegerField(default=0)
    emulated = models.BooleanField(default=False)
    cpu_cores = models.PositiveIntegerField(default=1)
    memory_gb = models.PositiveIntegerField(default=1)
    host = models.CharField(max_length=200, default="", blank=True)
    ip = models.GenericIPAddressField(null=True, blank=True)
    versions = models.JSONField(default=dict, blank=True)  # {"python": …, "torch": …, "cuda": …, "driver": …}
    network = models.JSONField(default=dict, blank=True)  # as `fermi.jobs.network` reads it: what is known, no more
    engine = models.JSONField(default=dict, blank=True)  # what only its engine understands: `Node.engine`
    discovered_as = models.CharField(max_length=320, default="", blank=True)
    gone_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)  # uptime counts from here
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="environment_name_per_project")]

    def __str__(self) -> str:
        return self.name


class Lease(models.Model):
    """An environment held by a training task. The primary key makes it impossible that two tasks hold it."""

    environment = models.OneToOneField(DevEnvironment, on_delete=models.PROTECT, primary_key=True, related_name="lease")
    holder = models.CharField(max_length=60, db_index=True)  # task id
    since = models.DateTimeField(default=now)


class PortLease(models.Model):
    """A rendezvous port held on a host by one attempt of a task, so that no two attempts use the same port."""

    host = models.CharField(max_length=200)
    port = models.PositiveIntegerField()
    holder = models.CharField(max_length=80, db_index=True)  # <task>-<attempt>

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "port"], name="one_holder_per_port")]
