"""Changes of clusters, and of environments that are registered by hand."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.clusters.selectors import build_connection, build_nodes, select_environments
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.common.texts import render_text
from fermi.engines.check_results import CheckResult
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import Problem
from fermi.planning import checks, plugins, summary


def create_cluster(user: User, *, name: str, backend: str, connection: Mapping[str, Any]) -> Cluster:
    """Create a cluster (administrator). Raises ProblemsError, and ApiError 409 CLUSTER_NAME_TAKEN."""
    access.require_administrator(user)
    check_connection(backend, connection)
    try:
        with transaction.atomic():
            cluster = Cluster.objects.create(name=name, backend=backend, connection=connection)
            audit.record_event(user, "cluster.create", cluster.pk, name=name, backend=backend, connection=connection)
    except IntegrityError:
        raise ApiError(409, "CLUSTER_NAME_TAKEN", "name", name=name) from None
    return cluster


def change_cluster(user: User, cluster: Cluster, changes: Mapping[str, Any]) -> None:
    """Change name or connection (administrator). The backend cannot be changed: the cluster's tasks are known to it."""
    access.require_administrator(user)
    if changes.get("connection", cluster.connection) != cluster.connection:  # one that stays may be older than a rule
        check_connection(cluster.backend, changes["connection"])
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(**changes)
            audit.record_event(user, "cluster.change", cluster.pk, **changes)
    except IntegrityError:
        raise ApiError(409, "CLUSTER_NAME_TAKEN", "name", name=changes["name"]) from None


def delete_cluster(user: User, cluster: Cluster) -> None:
    """Delete a cluster (administrator), with the environments that its engine listed. Raises ApiError 409
    CLUSTER_IN_USE if anything else refers to it."""
    access.require_administrator(user)
    key = cluster.pk
    try:
        with transaction.atomic():
            cluster.environments.exclude(discovered_as="").delete()
            audit.record_event(user, "cluster.delete", key, name=cluster.name)
            cluster.delete()
    except (ProtectedError, IntegrityError):
        raise ApiError(409, "CLUSTER_IN_USE", cluster=cluster.name) from None


def check_cluster(user: User, cluster: Cluster) -> list[CheckResult]:
    """Return what the engine's checks find (administrator). Takes seconds."""
    access.require_administrator(user)
    return plugins.get_check(cluster.backend).findings(build_connection(cluster))


def check_connection(backend: str, connection: Mapping[str, Any]) -> None:
    """Raise ProblemsError unless `connection` fits the schema of the backend."""
    try:
        problems = checks.find_connection_problems(backend, connection)
    except UnknownNameError as unknown:
        problems = [Problem("backend", unknown.code, unknown.params)]
    if problems:
        raise ProblemsError(problems)


def register_environment(
    user: User, *, project_id: str, cluster_id: str, zone: str, name: str, **facts: Any
) -> DevEnvironment:
    """Register an environment by hand (maintainer). `zone` is an id or a name; a new name creates a zone."""
    problems = []
    if access.get_role(user, project_id) is None or not Project.objects.filter(pk=project_id).exists():
        problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": project_id}))
    if not Cluster.objects.filter(pk=cluster_id).exists():
        problems.append(Problem("clusterId", "CLUSTER_UNKNOWN", {"cluster": cluster_id}))
    if problems:
        raise ProblemsError(problems)
    access.require_role(user, project_id, Role.MAINTAINER)
    _require_administrator_for_engine(user, facts)
    environment = DevEnvironment(project_id=project_id, cluster_id=cluster_id, name=name, owner=user, **facts)
    if environment.status == EnvironmentStatus.RUNNING:
        environment.started_at = now()
    try:
        with transaction.atomic():
            check_row_limit("environments", DevEnvironment.objects.filter(project=project_id, gone_at=None))
            environment.zone = _get_or_create_zone(zone)
            environment.save(force_insert=True)
            audit.record_event(user, "environment.register", environment.pk, project=project_id, name=name)
    except IntegrityError:
        raise ApiError(409, "ENVIRONMENT_NAME_TAKEN", "name", name=name) from None
    return environment


def change_environment(user: User, environment: DevEnvironment, changes: dict[str, Any]) -> None:
    """Change what is stored of an environment (maintainer). Running tasks keep what they were planned with. Its owner
    may also change whether it is warm, because that uses its memory."""
    owns = environment.owner_id == user.pk and changes.keys() == {"warm"}
    access.require_role(user, environment.project_id, Role.MEMBER if owns else Role.MAINTAINER)
    _require_administrator_for_engine(user, changes)
    if changes.get("status", environment.status) != environment.status:
        environment.started_at = now() if changes["status"] == EnvironmentStatus.RUNNING else None
    try:
        with transaction.atomic():
            if "zone" in changes:
                environment.zone = _get_or_create_zone(changes["zone"])
            for name in changes.keys() - {"zone"}:
                setattr(environment, name, changes[name])
            environment.save(update_fields=[*changes, "started_at"])
            audit.record_event(user, "environment.change", environment.pk, project=environment.project_id, **changes)
    except IntegrityError:
        raise ApiError(409, "ENVIRONMENT_NAME_TAKEN", "name", name=changes.get("name")) from None


def delete_environment(user: User, environment: DevEnvironment) -> None:
    """Delete an environment (maintainer). Raises ApiError 409 ENVIRONMENT_HELD while a task holds it; the lease's
    foreign key decides races."""
    access.require_role(user, environment.project_id, Role.MAINTAINER)
    key, name = environment.pk, environment.name
    try:
        with transaction.atomic():
            environment.delete()
            audit.record_event(user, "environment.remove", key, project=environment.project_id, name=name)
    except (ProtectedError, IntegrityError):
        holder = DevEnvironment.objects.filter(pk=key).values_list("lease__holder", flat=True).first()
        raise ApiError(409, "ENVIRONMENT_HELD", environment=name, task=holder) from None


def summarize_environments(user: User, environment_ids: list[str], master: str | None) -> dict[str, Any]:
    """Return the total of the selected environments, with warnings in the language of the request."""
    chosen, problems = select_environments(user, environment_ids, "environmentIds")
    if master is not None and master not in environment_ids:
        problems.append(Problem("masterNode", "MASTER_NOT_SELECTED", {"master": master}))
    if problems:
        raise ProblemsError(problems)
    nodes = build_nodes(chosen)
    warnings = []
    for warning in summary.find_warnings(nodes, master):
        message, hint = render_text(warning.code, warning.params)
        warnings.append({"code": warning.code, "message": message, "hint": hint})
    return {**summary.summarize_nodes(nodes), "warnings": warnings}


def _require_administrator_for_engine(user: User, facts: Mapping[str, Any]) -> None:
    """Raise ApiError 403 if `facts` has engine settings and the user is no administrator: they may name host paths and
    service accounts."""
    if "engine" in facts:
        access.require_administrator(user)


def _get_or_create_zone(name: str) -> AvailabilityZone:
    by_id = AvailabilityZone.objects.filter(pk=name).first()
    return by_id or AvailabilityZone.objects.get_or_create(name=name)[0]


def record_unreachable(cluster: Cluster, error: BackendError) -> None:
    """Record that the engine did not answer. Writes only if it had answered before."""
    if cluster.away_since is None:
        cluster.away_since = now()
        why = {"code": error.code, "params": dict(error.params)}
        Cluster.objects.filter(pk=cluster.pk, away_since=None).update(away_since=cluster.away_since, away_why=why)


def record_reachable(cluster: Cluster) -> None:
    """Record that the engine answers again. Writes only if it had not."""
    if cluster.away_since is not None:
        Cluster.objects.filter(pk=cluster.pk).update(away_since=None, away_why={})
        cluster.away_since = None
