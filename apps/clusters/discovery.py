"""Keeps environments in step with what an engine lists, for engines that list them.

One thread for each such cluster runs in the watcher process. While an engine cannot be reached its environments stay as
they were last seen. Several watchers do no harm: they write the same.

What users set (the name, whether an environment is cordoned) is never overwritten.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, close_old_connections, transaction
from django.db.models import Exists, OuterRef

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.cluster_threads import PerCluster
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentKind, EnvironmentStatus
from apps.common.clock import now
from apps.common.retention import delete_old
from fermi.engines.discovery import Found
from fermi.planning import plugins

log = logging.getLogger(__name__)

FORGET_AFTER = timedelta(days=1)  # a pod that is gone may come back; its environment keeps its place that long


def environment_id(cluster_id: str, key: str) -> str:
    """Return the id of a discovered environment: the same in every process and after every restart, and different in
    another cluster."""
    return f"env-{hashlib.sha256(f'{cluster_id}/{key}'.encode()).hexdigest()[:12]}"


def settle(cluster: Cluster, found: Sequence[Found]) -> bool:
    """Update the cluster's discovered environments to what its engine lists. Returns True if anything changed."""
    known = {one.pk: one for one in DevEnvironment.objects.filter(cluster=cluster).exclude(discovered_as="")}
    projects = _by_id_and_name()
    changed, shown = False, set()
    for one in found:
        key = environment_id(cluster.pk, one.key)
        shown.add(key)
        if (project := projects.get(one.project)) is None:
            log.warning("%s: %s is in the project %r, which there is not", cluster, one.key, one.project)
            continue
        facts = _facts(cluster, one)
        if (environment := known.get(key)) is None:
            changed |= _create(cluster, project, key, one, facts)
        elif different := [name for name, value in facts.items() if getattr(environment, name) != value]:
            DevEnvironment.objects.filter(pk=key).update(**{name: facts[name] for name in different})
            changed = True
    gone = [key for key, one in known.items() if key not in shown and one.gone_at is None]
    left = DevEnvironment.objects.filter(pk__in=gone)
    return bool(left.update(status=EnvironmentStatus.STOPPED, started_at=None, gone_at=now())) or changed


def forget() -> int:
    """Delete environments that have been gone for KEEP_GONE_FOR and that nothing refers to. Returns their number."""
    rows = DevEnvironment.objects.filter(gone_at__lt=now() - FORGET_AFTER)
    for relation in DevEnvironment._meta.related_objects:
        assert isinstance(relation.related_model, type)
        if getattr(relation.related_model, "GOES_WITH_ENVIRONMENT", False):
            continue
        refers = relation.related_model._default_manager.filter(**{relation.field.name: OuterRef("pk")})
        rows = rows.filter(~Exists(refers))
    return delete_old(rows)


def _by_id_and_name() -> dict[str, str]:
    rows = list(Project.objects.values_list("pk", "name"))
    return {name: pk for pk, name in rows} | {pk: pk for pk, _ in rows}


def _facts(cluster: Cluster, one: Found) -> dict[str, Any]:
    status = EnvironmentStatus.RUNNING if one.running else EnvironmentStatus.STOPPED
    zone, _ = AvailabilityZone.objects.get_or_create(name=(one.zone or cluster.name)[:100])
    return {
        "status": status if one.healthy else EnvironmentStatus.UNHEALTHY,
        "zone_id": zone.pk,
        "gpu_type": one.gpu_type,
        "gpu_count": one.gpu_count,
        "emulated": one.emulated,
        "cpu_cores": one.cpu_cores,
        "memory_gb": one.memory_gb,
        "image": one.image[:200],
        "host": one.host[:200],
        "ip": one.ip or None,
        "engine": dict(one.engine),
        "kind": one.kind if one.kind in EnvironmentKind.values else EnvironmentKind.CUSTOM,
        "gone_at": None,
        "started_at": datetime.fromtimestamp(one.started_at, UTC) if one.started_at else None,
    }


def _create(cluster: Cluster, project: str, key: str, one: Found, facts: dict[str, Any]) -> bool:
    """Create the environment under its own name, or a longer one if the project has that name already. Returns False if
    another watcher was first."""
    owner = User.objects.filter(username=one.owner).first() if one.owner else None
    for name in (one.name, one.key, f"{cluster.name}/{one.key}"):
        try:
            with transaction.atomic():
                DevEnvironment.objects.create(
                    pk=key, cluster=cluster, project_id=project, name=name[:100], owner=owner,
                    discovered_as=one.key, **facts,
                )  # fmt: skip
            return True
        except IntegrityError:
            if DevEnvironment.objects.filter(pk=key).exists():
                return False
    log.warning("%s: %s has no name that its project has not got already", cluster, one.key)
    return False


def following(on_change: Callable[[], None]) -> PerCluster:
    """Return the threads that follow all clusters with discovery. They call `on_change` when environments of a cluster
    changed."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        discovery = plugins.discovery(cluster.backend)
        assert discovery is not None
        for found in discovery.follow(selectors.connection(cluster), ending):
            close_old_connections()
            if settle(cluster, found):
                on_change()

    return PerCluster("discovery", lambda cluster: plugins.discovery(cluster.backend) is not None, follow)
