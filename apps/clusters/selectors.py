"""Queries of clusters and environments, as the API returns them and as the planning toolkit takes them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.common import disks
from apps.common.clock import now
from apps.common.sql import CompiledInstances, make_key_parameters
from apps.common.texts import render_text
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.jobs.spec import Node, Problem
from fermi.planning import plugins

IS_UNHEALTHY = Q(status=EnvironmentStatus.UNHEALTHY)
IS_STOPPED_BUT_HELD = Q(status=EnvironmentStatus.STOPPED, lease__isnull=False)
"""A task holds the environment although nothing can run there."""
FILTERS = {
    "zone": lambda zones: Q(zone__in=zones) | Q(zone__name__in=zones),
    "status": lambda states: Q(status__in=states),
    "gpuType": lambda types: Q(gpu_type__in=types),
    "kind": lambda kinds: Q(kind__in=kinds),
    "cluster": lambda cluster: Q(cluster=cluster),
    "project": lambda project: Q(project=project),
    "minGpus": lambda count: Q(gpu_count__gte=count),
    "search": lambda word: Q(name__icontains=word) | Q(pk__icontains=word) | Q(stack__icontains=word),
}


def build_connection(cluster: Cluster) -> dict[str, Any]:
    """Return the connection that the backend takes: what is stored, and the platform's own settings for every
    engine."""
    return {
        "carried": {
            "data": settings.CARRIED_DATA_GB << 30,
            "folder": settings.CARRIED_FOLDER_GB << 30,
            "task": settings.CARRIED_TASK_GB << 30,
        },
        "data_dir": str(settings.DATA_DIR),
        "data_roots": settings.DATA_ROOTS,
        "isolation": settings.ISOLATION,
        "platform_user": os.geteuid(),
        "private": settings.PRIVATE_PATHS,
        "task_reads": settings.TASK_READS,
        "task_writes": settings.TASK_WRITES,
        "warm": settings.STAND_BY,
        **cluster.connection,
    }


def list_operator_findings(user: User) -> list[CheckResult]:
    """Return findings about the platform for administrators and operators; none for other users."""
    if not (user.is_superuser or user.is_staff):
        return []
    known = Cluster.objects.filter(backend__in=plugins.BACKENDS)
    found = [one for cluster in known for one in plugins.get_check(cluster.backend).notices(build_connection(cluster))]
    if full := disks.find_nearly_full(settings.DATA_DIR):
        params = {"path": full["path"], "percent": full["percent"], "freeMiB": full["free"] >> 20}
        found.append(CheckResult(CheckLevel.WARN, "DISK_NEARLY_FULL", params))
    return [finding for finding in found if finding.level is not CheckLevel.PASS]


def list_clusters(user: User) -> QuerySet[Cluster, Any]:
    """Return all clusters; their connections are for administrators only."""
    return Cluster.objects.values("id", "name", "backend", *(["connection"] if user.is_superuser else []))


def serialize_cluster(row: dict[str, Any]) -> dict[str, Any]:
    return {"connection": None, **row}


def list_visible_environments(user: access.AnyUser) -> QuerySet[DevEnvironment]:
    """Return the environments of the user's projects, and those that are shared with all."""
    return access.filter_visible(DevEnvironment.objects.all(), user, or_open=Q(shared=True))


def list_environments(user: User, filters: Mapping[str, Any]) -> QuerySet[DevEnvironment, Any]:
    """Return rows for `serialize_environment`."""
    rows = list_visible_environments(user)
    for name, condition in FILTERS.items():
        if filters.get(name):
            rows = rows.filter(condition(filters[name]))
    return rows.values(
        "id",
        "name",
        "kind",
        "status",
        "cordoned",
        "image",
        "stack",
        "emulated",
        "host",
        "ip",
        "versions",
        "network",
        "shared",
        "warm",
        "labels",
        projectWarm=F("project__warm"),
        projectId=F("project_id"),
        clusterId=F("cluster_id"),
        backend=F("cluster__backend"),
        zoneId=F("zone_id"),
        zoneName=F("zone__name"),
        gpuType=F("gpu_type"),
        gpuCount=F("gpu_count"),
        cpuCores=F("cpu_cores"),
        memoryGb=F("memory_gb"),
        startedAt=F("started_at"),
        owner_=F("owner__username"),
        heldBy=F("lease__holder"),
    )


def serialize_environment(row: dict[str, Any]) -> dict[str, Any]:
    """Return the API's environment from one row of `list_environments`."""
    row["zone"] = {"id": row.pop("zoneId"), "name": row.pop("zoneName")}
    row["owner"] = row.pop("owner_")
    running = row["status"] == EnvironmentStatus.RUNNING
    uptime = now() - row["startedAt"] if running and row["startedAt"] else None
    row["uptimeSeconds"] = int(uptime.total_seconds()) if uptime is not None else None
    problem = find_obstacle(row["name"], row["status"], row["cordoned"])
    row["selectable"] = problem is None
    row["notSelectableReason"] = problem and {
        "code": problem.code,
        "message": render_text(problem.code, problem.params)[0],
    }
    return row


def get_environment(user: User, environment_id: str) -> dict[str, Any] | None:
    """Return one environment with details, or None. What its engine knows it by is for maintainers."""
    row = list_environments(user, {}).annotate(discoveredAs=F("discovered_as")).filter(pk=environment_id).first()
    if row is None:
        return None
    engine = None
    if access.get_role(user, row["projectId"]) is Role.MAINTAINER:
        engine = DevEnvironment.objects.values_list("engine", flat=True).get(pk=environment_id)
    return serialize_environment({**row, "engine": engine})


def serialize_report(findings: Iterable[CheckResult]) -> dict[str, Any]:
    """Return the findings as the API's report, in the language of the request."""
    items = []
    for one in findings:
        message, hint = render_text(one.code, one.params)
        items.append({"level": one.level, "code": one.code, "message": message, "hint": hint, "remedy": one.remedy})
    return {"fit": all(item["level"] is not CheckLevel.FAIL for item in items), "findings": items}


def find_obstacle(name: str, status: str, cordoned: bool) -> Problem | None:
    """Return why no task can run in the environment now, or None."""
    if status != EnvironmentStatus.RUNNING:
        return Problem("", "ENVIRONMENT_NOT_RUNNING", {"environment": name, "status": status})
    if cordoned:
        return Problem("", "ENVIRONMENT_CORDONED", {"environment": name})
    return None


_NAMED_QUERY = CompiledInstances(
    DevEnvironment,
    lambda rights, /, user=0, **among: (
        list_visible_environments(rights.with_key(user)).filter(pk__in=list(among.values()))
    ),
    "zone", "cluster", "project",
)  # fmt: skip


def select_environments(user: User, ids: Sequence[str], field: str) -> tuple[list[DevEnvironment], list[Problem]]:
    """Return the environments with these ids, in this order, and the problems with the ids; `field` is the field that
    has them."""
    if not ids:
        return [], []
    among = make_key_parameters(ids)
    known = {
        row.pk: row
        for row in _NAMED_QUERY.fetch(access.get_query_shape(user), **access.build_user_params(user), **among)
    }
    found, problems = [], []
    for index, key in enumerate(ids):
        if key in ids[:index]:
            problems.append(Problem(f"{field}.{index}", "ENVIRONMENT_DUPLICATE", {"environment": key}))
        elif key not in known:
            problems.append(Problem(f"{field}.{index}", "ENVIRONMENT_UNKNOWN", {"environment": key}))
        else:
            found.append(known[key])
    return found, problems


def build_node(environment: DevEnvironment) -> Node:
    """Return the environment as a node of a job; load it with its zone."""
    return Node(
        id=environment.pk,
        name=environment.name,
        host=environment.host,
        ip=environment.ip or "",
        zone=environment.zone.name,
        gpu_type=environment.gpu_type,
        gpu_count=environment.gpu_count,
        emulated=environment.emulated,
        cpu_cores=environment.cpu_cores,
        memory_gb=environment.memory_gb,
        image=environment.image,
        versions=environment.versions,
        engine=environment.engine,
        network=environment.network,
    )


def build_nodes(environments: Iterable[DevEnvironment]) -> list[Node]:
    return [build_node(environment) for environment in environments]


def read_zone_ids() -> dict[str, str]:
    """Return the zones' ids, by id and by name."""
    by_name = {name: key for key, name in AvailabilityZone.objects.values_list("pk", "name")}
    return by_name | {key: key for key in by_name.values()}


def list_zones(user: User) -> QuerySet[AvailabilityZone, Any]:
    """Return all zones, with the number of environments and GPUs that the user may see there."""
    mine = Q(environments__in=list_visible_environments(user))
    return AvailabilityZone.objects.values(
        "id",
        "name",
        environmentCount=Count("environments", filter=mine),
        gpuCount=Coalesce(Sum("environments__gpu_count", filter=mine), 0),
    )
