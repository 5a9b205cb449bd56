"""What an environment would be created from, and all problems with it, for requests and previews. Creates nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from apps.accounts import access, secrets
from apps.accounts.models import Project, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.ids import new_id
from apps.environments import gpu_allocation, quota
from apps.environments.connection import get_environment_backend
from apps.environments.models import Template
from apps.scheduling import selectors
from fermi.engines.environments import EnvironmentBackend, EnvironmentPort, EnvironmentSpec
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import Problem
from fermi.planning import plugins, variables
from fermi.scheduler.snapshot import Project as Sharing

SERVICE_NAMES = {"jupyter": "jupyter", "vscode": "vscode", "custom": ""}
"""Name of the environment's own service, by kind."""
SPEC_COLUMNS = (
    "kind", "image", "packages", "gpu_type", "gpu_count", "emulated", "cpu_cores", "memory_gb", "shared_memory_gb",
    "disk_gb", "ports", "env", "secret_env", "start_script",
)  # fmt: skip
"""Columns that a template and a spec share. A request may differ from its template in any of them, and in
`idle_stop_minutes`."""
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_PACKAGE = re.compile(r"[A-Za-z0-9][^\n\r\0]*")


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A request for an environment. `template` "": none, `changes` has all columns. `cluster`, `zone` (id or name) "":
    the template's, or the only one. `changes`: columns that differ from the template."""

    template: str
    project: str
    name: str
    cluster: str = ""
    zone: str = ""
    host: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ValidatedEnvironment:
    """A validated request. `spec`, `cluster` and `zone` are set if there are no problems. `gpus`: how many GPUs its
    host assigns by index. `marks`: the engine's marks on all that it creates."""

    request: CreateRequest
    problems: list[Problem] = field(default_factory=list)
    template: Template | None = None
    project: Project | None = None
    cluster: Cluster | None = None
    zone: AvailabilityZone | None = None
    spec: EnvironmentSpec | None = None
    gpus: int | None = None
    idle_stop_minutes: int | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)


def validate_environments(user: User, requests: Sequence[CreateRequest]) -> list[ValidatedEnvironment]:
    """Validate requests that belong together: what each environment would be, and its problems beside the others. Asks
    engines; no transaction should be open."""
    found: list[ValidatedEnvironment] = []
    for one in requests:
        found.append(_validate_environment(user, one, found))
    return found


def _validate_environment(
    user: User, request: CreateRequest, earlier: Sequence[ValidatedEnvironment]
) -> ValidatedEnvironment:
    draft = ValidatedEnvironment(request)
    project = Project.objects.filter(pk=request.project).first()
    if project is None or access.get_role(user, project) is None:
        draft.problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": request.project}))
        return draft
    draft.project = project
    template = Template()
    if request.template or any(name not in request.changes for name in SPEC_COLUMNS):
        offered = Template.objects.filter(Q(project=None) | Q(project=project))
        draft.template = offered.filter(pk=request.template).first()
        if draft.template is None:
            draft.problems.append(Problem("templateId", "TEMPLATE_UNKNOWN", {"template": request.template}))
            return draft
        template = draft.template
    values = {name: getattr(template, name) for name in SPEC_COLUMNS} | {
        name: value for name, value in request.changes.items() if name in SPEC_COLUMNS
    }
    draft.idle_stop_minutes = request.changes.get("idle_stop_minutes", template.idle_stop_minutes)
    draft.problems += _check_name(project, request, earlier)
    draft.problems += check_values(values)
    draft.problems += secrets.find_unknown_secrets(project.pk, values["secret_env"])
    hosting = _choose_cluster(draft, request.cluster or template.cluster_id or "")
    wanted = request.zone or template.zone_id or ""
    _choose_zone(draft, wanted)
    limits = selectors.build_project(project, selectors.get_limits(project))
    draft.problems += _check_limits(limits, request.name, values, draft.zone)
    together = [one.spec.gpu_count for one in earlier if one.spec and one.project == project]
    draft.problems += quota.check_quota(project, user, len(together) + 1, sum(together) + values["gpu_count"])
    if draft.problems or hosting is None or draft.cluster is None or draft.zone is None:
        return draft
    draft.marks = hosting.marks
    kept = _choose_engine_zone(draft, draft.zone, draft.cluster, hosting) if wanted or limits.zones else ""
    spec = build_spec(new_id("env"), request.name, project.pk, kept, request.host, values)
    try:
        draft.problems += hosting.problems(spec)
        draft.gpus = gpu_allocation.count_host_gpus(hosting, spec)
    except BackendError as error:
        draft.problems.append(Problem("clusterId", error.code, error.params))
    same = [one.spec for one in earlier if one.spec and one.cluster == draft.cluster and not one.spec.emulated]
    claimed = sum(one.gpu_count for one in same if one.host == spec.host)
    draft.problems += gpu_allocation.check_free_gpus(draft.cluster.pk, spec, draft.gpus, claimed)
    draft.spec = spec
    return draft


def build_spec(key: str, name: str, project: str, zone: str, host: str, values: Mapping[str, Any]) -> EnvironmentSpec:
    """Return the spec. `values`: by the names of SPEC_COLUMNS."""
    ports = tuple(EnvironmentPort(one["name"], one["port"]) for one in values["ports"])
    packages = tuple(values["packages"])
    rest = {**values, "ports": ports, "packages": packages}
    return EnvironmentSpec(id=key, name=name, project=project, run=0, zone=zone, host=host, **rest)


def check_values(values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems with a template's values, wherever it is used. Pure."""
    found = [
        *_check_ports(values["kind"], values["ports"]),
        *variables.find_problems(values["env"], values["secret_env"]),
    ]
    for index, one in enumerate(values["packages"]):
        if not _PACKAGE.fullmatch(one):
            found.append(Problem(f"packages.{index}", "PACKAGE_INVALID", {"found": one}))
    return found


def _check_ports(kind: str, ports: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    names, numbers = {SERVICE_NAMES.get(kind, "")}, set[int]()
    for index, one in enumerate(ports):
        name, number = one["name"], one["port"]
        if not _PORT_NAME.fullmatch(name):
            yield Problem(f"ports.{index}.name", "PORT_NAME_INVALID", {"found": name})
        elif name in names:
            yield Problem(f"ports.{index}.name", "PORT_NAME_TWICE", {"found": name})
        if number in numbers:
            yield Problem(f"ports.{index}.port", "PORT_TWICE", {"found": number})
        names.add(name)
        numbers.add(number)


def _check_name(project: Project, request: CreateRequest, earlier: Sequence[ValidatedEnvironment]) -> Iterator[Problem]:
    taken = any(one.request.name == request.name and one.request.project == request.project for one in earlier)
    if taken or DevEnvironment.objects.filter(project=project, name=request.name).exists():
        yield Problem("name", "ENVIRONMENT_NAME_TAKEN", {"name": request.name})


def _choose_cluster(draft: ValidatedEnvironment, cluster_id: str) -> EnvironmentBackend | None:
    """Choose the named cluster, or the only one that can create environments; return its backend."""
    if cluster_id:
        draft.cluster = Cluster.objects.filter(pk=cluster_id).first()
        if draft.cluster is None:
            draft.problems.append(Problem("clusterId", "CLUSTER_UNKNOWN", {"cluster": cluster_id}))
            return None
        return _get_backend(draft, draft.cluster)
    able = list_environment_clusters()
    if len(able) != 1:
        known = ", ".join(one.pk for one in able) or "–"
        draft.problems.append(Problem("clusterId", "CLUSTER_TO_CHOOSE", {"known": known}))
        return None
    draft.cluster = able[0]
    return _get_backend(draft, able[0])


def check_backend(cluster: Cluster, spec: EnvironmentSpec, *, resized: bool = False) -> list[Problem]:
    """Return the engine's problems with the spec. `resized`: its disk is to get another size. Asks the engine."""
    try:
        hosting = get_environment_backend(cluster)
        return [*hosting.problems(spec), *(hosting.resize_problems(spec) if resized else ())] if hosting else []
    except BackendError as error:
        return [Problem("", error.code, error.params)]


def list_environment_clusters() -> list[Cluster]:
    """Return the clusters whose engines can create environments."""
    known = Cluster.objects.filter(backend__in=plugins.BACKENDS).order_by("name")
    return [one for one in known if plugins.can_make_environments(one.backend)]


def _get_backend(draft: ValidatedEnvironment, cluster: Cluster) -> EnvironmentBackend | None:
    try:
        hosting = get_environment_backend(cluster)
    except (BackendError, UnknownNameError) as error:
        draft.problems.append(Problem("clusterId", error.code, error.params))
        return None
    if hosting is None:
        params = {"backend": cluster.backend}
        draft.problems.append(Problem("clusterId", "ENVIRONMENTS_NOT_MADE_HERE", params))
    return hosting


def _choose_zone(draft: ValidatedEnvironment, zone_name: str) -> None:
    """Choose the zone by id or name, or else the zone of the cluster's other environments."""
    zones = AvailabilityZone.objects.all()
    if zone_name:
        draft.zone = zones.filter(pk=zone_name).first() or zones.filter(name=zone_name).first()
        if draft.zone is None:
            draft.problems.append(Problem("zone", "ZONE_UNKNOWN", {"zone": zone_name}))
    elif draft.cluster:
        usual = zones.filter(environments__cluster=draft.cluster).order_by("name").first()
        draft.zone = usual or zones.get_or_create(name=draft.cluster.name)[0]


def _choose_engine_zone(
    draft: ValidatedEnvironment, zone: AvailabilityZone, cluster: Cluster, hosting: EnvironmentBackend
) -> str:
    """Return the name of the zone that the engine has to place it in, "" = any. Machines without a zone are in a zone
    that the platform named after the cluster: no machine has that label."""
    there = hosting.zones()
    if there is None and zone.name != cluster.name:
        return zone.name
    if there and zone.name in there:
        return zone.name
    if there and zone.name != cluster.name:
        params = {"zone": zone.name, "cluster": cluster.name, "known": ", ".join(sorted(there))}
        draft.problems.append(Problem("zone", "ZONE_NOT_IN_CLUSTER", params))
    return ""


def _check_limits(
    limits: Sharing, name: str, values: Mapping[str, Any], zone: AvailabilityZone | None
) -> Iterator[Problem]:
    """Yield GPU types and zones that the project may not use."""
    said = {"project": limits.name, "environment": name}
    if limits.gpu_types and values["gpu_count"] and values["gpu_type"] not in limits.gpu_types:
        allowed = ", ".join(sorted(limits.gpu_types))
        params = {**said, "found": values["gpu_type"] or "–", "allowed": allowed}
        yield Problem("gpuType", "LIMIT_GPU_TYPES", params)
    if limits.zones and zone and zone.pk not in limits.zones:
        names = AvailabilityZone.objects.filter(pk__in=limits.zones).order_by("name").values_list("name", flat=True)
        yield Problem("zone", "LIMIT_ZONES", {**said, "found": zone.name, "allowed": ", ".join(names)})
