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
from apps.environments.connection import hosting_of
from apps.environments.models import Template
from apps.scheduling import selectors as sharing
from fermi.engines.environments import HostedSpec, Hosting, Port
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import Problem
from fermi.planning import plugins, variables
from fermi.scheduler.snapshot import Project as Sharing

OWN_DOORS = {"jupyter": "jupyter", "vscode": "vscode", "custom": ""}
"""Name of the environment's own service, by kind."""
COLUMNS = (
    "kind", "image", "packages", "gpu_type", "gpu_count", "emulated", "cpu_cores", "memory_gb", "shared_memory_gb",
    "disk_gb", "ports", "env", "secret_env", "start_script",
)  # fmt: skip
"""Columns that a template and a spec share. A request may differ from its template in any of them, and in
`idle_stop_minutes`."""
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_PACKAGE = re.compile(r"[A-Za-z0-9][^\n\r\0]*")


@dataclass(frozen=True, slots=True)
class Asked:
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
class Draft:
    """A validated request. `spec`, `cluster` and `zone` are set if there are no problems. `gpus`: how many GPUs its
    host assigns by index. `marks`: the engine's marks on all that it creates."""

    asked: Asked
    problems: list[Problem] = field(default_factory=list)
    template: Template | None = None
    project: Project | None = None
    cluster: Cluster | None = None
    zone: AvailabilityZone | None = None
    spec: HostedSpec | None = None
    gpus: int | None = None
    idle_stop_minutes: int | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)


def drafts(user: User, asked: Sequence[Asked]) -> list[Draft]:
    """Validate requests that belong together: what each environment would be, and its problems beside the others. Asks
    engines; no transaction should be open."""
    found: list[Draft] = []
    for one in asked:
        found.append(_draft(user, one, found))
    return found


def _draft(user: User, asked: Asked, before: Sequence[Draft]) -> Draft:
    draft = Draft(asked)
    project = Project.objects.filter(pk=asked.project).first()
    if project is None or access.role_in(user, project) is None:
        draft.problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": asked.project}))
        return draft
    draft.project = project
    template = Template()
    if asked.template or any(name not in asked.changes for name in COLUMNS):
        offered = Template.objects.filter(Q(project=None) | Q(project=project))
        draft.template = offered.filter(pk=asked.template).first()
        if draft.template is None:
            draft.problems.append(Problem("templateId", "TEMPLATE_UNKNOWN", {"template": asked.template}))
            return draft
        template = draft.template
    values = {name: getattr(template, name) for name in COLUMNS} | {
        name: value for name, value in asked.changes.items() if name in COLUMNS
    }
    draft.idle_stop_minutes = asked.changes.get("idle_stop_minutes", template.idle_stop_minutes)
    draft.problems += _name_problems(project, asked, before)
    draft.problems += value_problems(values)
    draft.problems += secrets.unknown(project.pk, values["secret_env"])
    hosting = _cluster(draft, asked.cluster or template.cluster_id or "")
    wanted = asked.zone or template.zone_id or ""
    _zone(draft, wanted)
    limits = sharing.known(project, sharing.limits_of(project))
    draft.problems += _sharing_problems(limits, asked.name, values, draft.zone)
    together = [one.spec.gpu_count for one in before if one.spec and one.project == project]
    draft.problems += quota.problems(project, user, len(together) + 1, sum(together) + values["gpu_count"])
    if draft.problems or hosting is None or draft.cluster is None or draft.zone is None:
        return draft
    draft.marks = hosting.marks
    kept = _kept_to(draft, draft.zone, draft.cluster, hosting) if wanted or limits.zones else ""
    spec = spec_of(new_id("env"), asked.name, project.pk, kept, asked.host, values)
    try:
        draft.problems += hosting.problems(spec)
        draft.gpus = gpu_allocation.there(hosting, spec)
    except BackendError as error:
        draft.problems.append(Problem("clusterId", error.code, error.params))
    same = [one.spec for one in before if one.spec and one.cluster == draft.cluster and not one.spec.emulated]
    claimed = sum(one.gpu_count for one in same if one.host == spec.host)
    draft.problems += gpu_allocation.problems(draft.cluster.pk, spec, draft.gpus, claimed)
    draft.spec = spec
    return draft


def spec_of(key: str, name: str, project: str, zone: str, host: str, values: Mapping[str, Any]) -> HostedSpec:
    """Return the spec. `values`: by the names of SPEC_COLUMNS."""
    ports = tuple(Port(one["name"], one["port"]) for one in values["ports"])
    packages = tuple(values["packages"])
    rest = {**values, "ports": ports, "packages": packages}
    return HostedSpec(id=key, name=name, project=project, run=0, zone=zone, host=host, **rest)


def value_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems with a template's values, wherever it is used. Pure."""
    found = [*_ports(values["kind"], values["ports"]), *variables.problems(values["env"], values["secret_env"])]
    for index, one in enumerate(values["packages"]):
        if not _PACKAGE.fullmatch(one):
            found.append(Problem(f"packages.{index}", "PACKAGE_INVALID", {"found": one}))
    return found


def _ports(kind: str, ports: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    names, numbers = {OWN_DOORS.get(kind, "")}, set[int]()
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


def _name_problems(project: Project, asked: Asked, before: Sequence[Draft]) -> Iterator[Problem]:
    taken = any(one.asked.name == asked.name and one.asked.project == asked.project for one in before)
    if taken or DevEnvironment.objects.filter(project=project, name=asked.name).exists():
        yield Problem("name", "ENVIRONMENT_NAME_TAKEN", {"name": asked.name})


def _cluster(draft: Draft, wanted: str) -> Hosting | None:
    """Choose the named cluster, or the only one that can create environments; return its backend."""
    if wanted:
        draft.cluster = Cluster.objects.filter(pk=wanted).first()
        if draft.cluster is None:
            draft.problems.append(Problem("clusterId", "CLUSTER_UNKNOWN", {"cluster": wanted}))
            return None
        return _hosting(draft, draft.cluster)
    able = makers()
    if len(able) != 1:
        known = ", ".join(one.pk for one in able) or "–"
        draft.problems.append(Problem("clusterId", "CLUSTER_TO_CHOOSE", {"known": known}))
        return None
    draft.cluster = able[0]
    return _hosting(draft, able[0])


def hosting_problems(cluster: Cluster, spec: HostedSpec, *, resized: bool = False) -> list[Problem]:
    """Return the engine's problems with the spec. `resized`: its disk is to get another size. Asks the engine."""
    try:
        hosting = hosting_of(cluster)
        return [*hosting.problems(spec), *(hosting.resize_problems(spec) if resized else ())] if hosting else []
    except BackendError as error:
        return [Problem("", error.code, error.params)]


def makers() -> list[Cluster]:
    """Return the clusters whose engines can create environments."""
    known = Cluster.objects.filter(backend__in=plugins.BACKENDS).order_by("name")
    return [one for one in known if plugins.makes_environments(one.backend)]


def _hosting(draft: Draft, cluster: Cluster) -> Hosting | None:
    try:
        hosting = hosting_of(cluster)
    except (BackendError, UnknownName) as error:
        draft.problems.append(Problem("clusterId", error.code, error.params))
        return None
    if hosting is None:
        params = {"backend": cluster.backend}
        draft.problems.append(Problem("clusterId", "ENVIRONMENTS_NOT_MADE_HERE", params))
    return hosting


def _zone(draft: Draft, wanted: str) -> None:
    """Choose the zone by id or name, or else the zone of the cluster's other environments."""
    zones = AvailabilityZone.objects.all()
    if wanted:
        draft.zone = zones.filter(pk=wanted).first() or zones.filter(name=wanted).first()
        if draft.zone is None:
            draft.problems.append(Problem("zone", "ZONE_UNKNOWN", {"zone": wanted}))
    elif draft.cluster:
        usual = zones.filter(environments__cluster=draft.cluster).order_by("name").first()
        draft.zone = usual or zones.get_or_create(name=draft.cluster.name)[0]


def _kept_to(draft: Draft, zone: AvailabilityZone, cluster: Cluster, hosting: Hosting) -> str:
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


def _sharing_problems(
    known: Sharing, name: str, values: Mapping[str, Any], zone: AvailabilityZone | None
) -> Iterator[Problem]:
    """Yield GPU types and zones that the project may not use."""
    said = {"project": known.name, "environment": name}
    if known.gpu_types and values["gpu_count"] and values["gpu_type"] not in known.gpu_types:
        allowed = ", ".join(sorted(known.gpu_types))
        params = {**said, "found": values["gpu_type"] or "–", "allowed": allowed}
        yield Problem("gpuType", "LIMIT_GPU_TYPES", params)
    if known.zones and zone and zone.pk not in known.zones:
        names = AvailabilityZone.objects.filter(pk__in=known.zones).order_by("name").values_list("name", flat=True)
        yield Problem("zone", "LIMIT_ZONES", {**said, "found": zone.name, "allowed": ", ".join(names)})
