"""Where training can run: clusters, availability zones, the dev environments people have, and who holds them."""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.clock import now
from apps.common.ids import new_id


class Cluster(models.Model):
    """An engine and how to reach it. `backend` is a name in `fermi.planning.plugins`; `connection` follows the schema
    of its `check` module and names secrets without containing any. `away_since`: it has not answered since then, and
    `away_why` (a code and its params) is what was said instead."""

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
    """Only a running environment can train. The last five are of those that the platform makes (apps.environments)."""

    RUNNING = "running"
    STOPPED = "stopped"
    UNHEALTHY = "unhealthy"
    CREATING = "creating"
    STARTING = "starting"
    STOPPING = "stopping"
    FAILED = "failed"
    DELETED = "deleted"


class DevEnvironment(models.Model):
    """A notebook or shell somebody already has running, with its GPUs: one node of a distributed job.

    `emulated`: the GPUs are stood in for by CPU processes on this machine; shown as such wherever the environment is.
    `shared`: tasks of any project may run there; its own project manages it. `labels`: words that tasks ask for.
    `discovered_as`: its key in the cluster, for one that the engine showed (see `discovery`); empty = by hand.
    `gone_at`: since when the engine shows it no more. `warm`: a process stands by in it with the training stack
    imported; None: as its project says.
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
    """An environment held by a training task. The primary key makes a double booking impossible, whoever races."""

    environment = models.OneToOneField(DevEnvironment, on_delete=models.PROTECT, primary_key=True, related_name="lease")
    holder = models.CharField(max_length=60, db_index=True)  # task id
    since = models.DateTimeField(default=now)


class PortLease(models.Model):
    """A rendezvous port held on a host by one attempt of a task, so that two attempts never meet on one port."""

    host = models.CharField(max_length=200)
    port = models.PositiveIntegerField()
    holder = models.CharField(max_length=80, db_index=True)  # <task>-<attempt>

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "port"], name="one_holder_per_port")]
