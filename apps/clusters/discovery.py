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
from apps.clusters.cluster_threads import ClusterThreads
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentKind, EnvironmentStatus
from apps.common.clock import now
from apps.common.retention import delete_old
from fermi.engines.discovery import DiscoveredEnvironment
from fermi.planning import plugins

log = logging.getLogger(__name__)

KEEP_GONE_FOR = timedelta(days=1)  # a pod that is gone may come back; its environment keeps its place that long


def make_environment_id(cluster_id: str, key: str) -> str:
    """Return the id of a discovered environment: the same in every process and after every restart, and different in
    another cluster."""
    return f"env-{hashlib.sha256(f'{cluster_id}/{key}'.encode()).hexdigest()[:12]}"


def sync_environments(cluster: Cluster, discovered: Sequence[DiscoveredEnvironment]) -> bool:
    """Update the cluster's discovered environments to what its engine lists. Returns True if anything changed."""
    known = {one.pk: one for one in DevEnvironment.objects.filter(cluster=cluster).exclude(discovered_as="")}
    projects = _read_project_ids()
    changed, shown = False, set()
    for one in discovered:
        key = make_environment_id(cluster.pk, one.key)
        shown.add(key)
        if (project := projects.get(one.project)) is None:
            log.warning("%s: %s is in the project %r, which there is not", cluster, one.key, one.project)
            continue
        facts = _build_columns(cluster, one)
        if (environment := known.get(key)) is None:
            changed |= _create_environment(cluster, project, key, one, facts)
        elif different := [name for name, value in facts.items() if getattr(environment, name) != value]:
            DevEnvironment.objects.filter(pk=key).update(**{name: facts[name] for name in different})
            changed = True
    gone = [key for key, one in known.items() if key not in shown and one.gone_at is None]
    left = DevEnvironment.objects.filter(pk__in=gone)
    return bool(left.update(status=EnvironmentStatus.STOPPED, started_at=None, gone_at=now())) or changed


def delete_gone_environments() -> int:
    """Delete environments that have been gone for KEEP_GONE_FOR and that nothing refers to. Returns their number."""
    rows = DevEnvironment.objects.filter(gone_at__lt=now() - KEEP_GONE_FOR)
    for relation in DevEnvironment._meta.related_objects:
        assert isinstance(relation.related_model, type)
        if getattr(relation.related_model, "GOES_WITH_ENVIRONMENT", False):
            continue
        refers = relation.related_model._default_manager.filter(**{relation.field.name: OuterRef("pk")})
        rows = rows.filter(~Exists(refers))
    return delete_old(rows)


def _read_project_ids() -> dict[str, str]:
    rows = list(Project.objects.values_list("pk", "name"))
    return {name: pk for pk, name in rows} | {pk: pk for pk, _ in rows}


def _build_columns(cluster: Cluster, discovered: DiscoveredEnvironment) -> dict[str, Any]:
    status = EnvironmentStatus.RUNNING if discovered.running else EnvironmentStatus.STOPPED
    zone, _ = AvailabilityZone.objects.get_or_create(name=(discovered.zone or cluster.name)[:100])
    return {
        "status": status if discovered.healthy else EnvironmentStatus.UNHEALTHY,
        "zone_id": zone.pk,
        "gpu_type": discovered.gpu_type,
        "gpu_count": discovered.gpu_count,
        "emulated": discovered.emulated,
        "cpu_cores": discovered.cpu_cores,
        "memory_gb": discovered.memory_gb,
        "image": discovered.image[:200],
        "host": discovered.host[:200],
        "ip": discovered.ip or None,
        "engine": dict(discovered.engine),
        "kind": discovered.kind if discovered.kind in EnvironmentKind.values else EnvironmentKind.CUSTOM,
        "gone_at": None,
        "started_at": datetime.fromtimestamp(discovered.started_at, UTC) if discovered.started_at else None,
    }


def _create_environment(
    cluster: Cluster, project: str, key: str, discovered: DiscoveredEnvironment, facts: dict[str, Any]
) -> bool:
    """Create the environment under its own name, or a longer one if the project has that name already. Returns False if
    another watcher was first."""
    owner = User.objects.filter(username=discovered.owner).first() if discovered.owner else None
    for name in (discovered.name, discovered.key, f"{cluster.name}/{discovered.key}"):
        try:
            with transaction.atomic():
                DevEnvironment.objects.create(
                    pk=key, cluster=cluster, project_id=project, name=name[:100], owner=owner,
                    discovered_as=discovered.key, **facts,
                )  # fmt: skip
            return True
        except IntegrityError:
            if DevEnvironment.objects.filter(pk=key).exists():
                return False
    log.warning("%s: %s has no name that its project has not got already", cluster, discovered.key)
    return False


def make_discovery_threads(on_change: Callable[[], None]) -> ClusterThreads:
    """Return the threads that follow all clusters with discovery. They call `on_change` when environments of a cluster
    changed."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        discovery = plugins.get_discovery(cluster.backend)
        assert discovery is not None
        for found in discovery.follow(selectors.build_connection(cluster), ending):
            close_old_connections()
            if sync_environments(cluster, found):
                on_change()

    return ClusterThreads("discovery", lambda cluster: plugins.get_discovery(cluster.backend) is not None, follow)
