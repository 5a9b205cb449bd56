"""Which processes hold memory in the environments that a task would use, how much GPU memory is left there, and what
can be done about it.

This is read from what was last observed of each run (`Hosted.seen`), or from a survey of an environment that the
platform does not manage (`memory_surveys`): no environment is entered, so that a page may ask on every keystroke. Only
ending a kernel enters an environment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.errors import ApiError
from apps.common.sql import CompiledQuery, list_columns, make_key_parameters
from apps.environments import connection, memory_surveys, session
from apps.environments.models import Hosted, MemoryLook
from apps.notices.services.incidents import open_incident
from apps.telemetry import reader, subjects
from fermi.envd import protocol
from fermi.jobs.errors import BackendError

KERNEL, PROCESS = HOLDERS = ("kernel", "process")


_RUNNING_QUERY = CompiledQuery(
    lambda **among: (
        Hosted.objects.filter(pk__in=list(among.values()), environment__status=EnvironmentStatus.RUNNING)
        .order_by("environment__name")
        .annotate(
            name=F("environment__name"),
            project=F("environment__project"),
            owner=F("environment__owner"),
            owner_name=F("environment__owner__username"),
        )
    ),
    list_columns(Hosted, "pk", "seen", name=None, project=None, owner=None, owner_name=None),
)


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """`environments`: those in which processes hold memory, with the processes, their owner and since when. `looking`:
    some are being surveyed, and may be among them."""

    environments: list[dict[str, Any]] = field(default_factory=list)
    looking: bool = False


def find_memory_in_use(environments: Iterable[str], user: User | None = None) -> MemoryInUse:
    """Return the environments in which processes hold memory. In each process, `mine` says whether `user` may end
    it."""
    found = list_memory_holders(environments, user)
    shown = ("environmentId", "environment", "processes", "gpus")
    held = [{name: one[name] for name in shown} for one in found if one["processes"]]
    return MemoryInUse(held, any(one["looking"] for one in found))


def list_memory_holders(environments: Iterable[str], user: User | None = None) -> list[dict[str, Any]]:
    """Return what is known of each environment that runs and can be observed."""
    found: list[dict[str, Any]] = []
    if not (among := make_key_parameters(environments)):
        return found
    for row in _RUNNING_QUERY.fetch(**among):
        mine = user is not None and _may_end(user, row["owner"], row["project"])
        activity = row["seen"].get("activity") or {}
        found.append(_build_entry(row["pk"], row["name"], _list_processes(activity, row["owner_name"], mine)))
    _add_gpus(found)
    for one in memory_surveys.request_surveys(among):
        mine = user is not None and _may_end(user, one.owner, one.project)
        activity = one.result or {}
        shown = _build_entry(
            one.environment, one.name, _list_processes(activity, one.owner_name, mine), activity.get("gpus", ())
        )
        found.append({**shown, "looking": one.looking, "error": one.error})
    return found


def build_empty_entry(key: str, name: str) -> dict[str, Any]:
    """Return the entry of an environment in which nothing is known to hold memory."""
    return _build_entry(key, name, ())


def describe_free_memory(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return a text such as `lab 12 / 80 GiB`: of each environment where it is known, free and total memory of the
    fullest GPU."""
    told = []
    for one in entries:
        if fullest := min(one["gpus"], key=lambda gpu: int(gpu["freeBytes"]), default=None):
            told.append(
                f"{one['environment']} {_format_gib(fullest['freeBytes'])} / {_format_gib(fullest['totalBytes'])} GiB"
            )
    return ", ".join(told)


def _format_gib(size: int) -> str:
    return f"{size / 2**30:.3g}"


def _build_entry(
    key: str, name: str, processes: Iterable[dict[str, Any]], gpus: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    rows = [
        {"index": gpu["index"], "name": gpu["name"], "totalBytes": gpu["total_bytes"], "freeBytes": gpu["free_bytes"]}
        for gpu in gpus
        if gpu["total_bytes"]
    ]
    return {
        "environmentId": key, "environment": name, "processes": list(processes), "gpus": rows, "looking": False,
        "error": None,
    }  # fmt: skip


def _add_gpus(entries: Iterable[dict[str, Any]]) -> None:
    """Add GPU memory from the telemetry to entries of managed environments."""
    wanted = {one["environmentId"]: one for one in entries if one["processes"]}
    if not wanted:
        return
    for subject, newest in reader.read_newest(subjects.make_environment_subjects(wanted)).items():
        totals = {
            int(number): int(total)
            for name, total in newest.values.items()
            for metric, _, number in (name.partition(":"),)
            if metric == "gpu_memory_total" and number.isdigit() and not newest.emulated
        }
        wanted[subjects.get_subject_id(subject)]["gpus"] = [
            {"index": number, "name": "", "totalBytes": total,
             "freeBytes": max(0, total - int(newest.values.get(f"gpu_memory:{number}", 0.0)))}
            for number, total in sorted(totals.items())
        ]  # fmt: skip


def describe_holders(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return a text such as `lab (train.ipynb), cv (python)`."""
    return ", ".join(
        f"{one['environment']} ({', '.join(each['name'] for each in one['processes'])})" for one in entries
    )


def end_kernel(user: User, environment: DevEnvironment, kernel: str) -> None:
    """End a kernel of the user's own environment; a maintainer may end all. Load the environment with its cluster and
    zone. Takes seconds at most. Raises ApiError."""
    access.require_role(user, environment.project_id, Role.MEMBER)
    if not _may_end(user, environment.owner_id, environment.project_id):
        if environment.owner is None:
            raise ApiError(403, "KERNEL_OF_NOBODY", environment=environment.name)
        raise ApiError(403, "KERNEL_OF_ANOTHER", environment=environment.name, owner=environment.owner.username)
    try:
        if Hosted.objects.filter(pk=environment.pk).exists():
            _end_by_envd(environment, kernel)
        else:
            _end_in_session(environment, kernel)
    except BackendError as error:
        raise ApiError(409, error.code, "", **error.params) from error
    audit.record_event(user, "environment.end-kernel", environment.pk, project=environment.project_id, kernel=kernel)


def _end_by_envd(environment: DevEnvironment, kernel: str) -> None:
    try:
        with connection.dial_envd(environment) as stream:
            answer = protocol.send_request(stream, {"open": "end-kernel", "kernel": kernel})
    except (OSError, protocol.ProtocolError) as error:
        answer = {"code": str(error)}
    if not answer.get("ok"):
        why = answer.get("code")
        raise ApiError(409, "KERNEL_NOT_ENDED", environment=environment.name, kernel=kernel, why=why)


def _end_in_session(environment: DevEnvironment, kernel: str) -> None:
    """End the process that was observed as this kernel, and no other process that has its id by now."""
    found = MemoryLook.objects.filter(pk=environment.pk).values_list("found", flat=True).first() or {}
    known = next((one for one in found.get("kernels", ()) if one["id"] == kernel), None)
    if known is None:
        raise ApiError(409, "KERNEL_UNKNOWN", kernel=kernel)
    try:
        with session.open_session(environment) as entered:
            entered.request("end-kernel", pid=known["pid"], started=known["started"])
    finally:
        memory_surveys.invalidate_survey(environment)


def ask_owner(user: User, environment: DevEnvironment) -> None:
    """Notify the owner that the user would like to train there; repeated by the same user it is one incident. Raises
    ApiError 409."""
    access.require_role(user, environment.project_id, Role.MEMBER)
    if environment.owner_id is None:
        raise ApiError(409, "ENVIRONMENT_WITHOUT_OWNER", environment=environment.name)
    held = describe_holders(find_memory_in_use([environment.pk]).environments)
    if not held:
        raise ApiError(409, "ENVIRONMENT_NOT_IN_USE", environment=environment.name)
    open_incident(
        "environment_wanted",
        f"{environment.pk} {user.pk}",
        "NOTICE_ENVIRONMENT_WANTED",
        {"environment": environment.name, "by": user.username, "held": held},
        project=environment.project_id,
        owner=environment.owner_id,
        link=f"/environments/{environment.pk}",
    )
    audit.record_event(user, "environment.ask-owner", environment.pk, project=environment.project_id)


def _may_end(user: User, owner: int | None, project: str | None) -> bool:
    return owner == user.pk or access.get_role(user, project) is Role.MAINTAINER


def _list_processes(activity: Mapping[str, Any], owner: str | None, may_end: bool) -> Iterable[dict[str, Any]]:
    """Yield kernels that are busy or hold memory, and other processes that do; processes of a kernel are counted with
    it."""
    kernels = {one["id"]: one for one in activity.get("kernels") or ()}
    of_kernels: dict[str, list[Mapping[str, Any]]] = {}
    others = []
    for holder in activity.get("holders") or ():
        if holder.get("kernel") in kernels:
            of_kernels.setdefault(holder["kernel"], []).append(holder)
        else:
            others.append(holder)
    for key, kernel in kernels.items():
        holders = of_kernels.get(key, [])
        if holders or kernel.get("busy"):
            yield _build_process(KERNEL, key, kernel["name"], kernel.get("since"), holders, owner, may_end)
    for holder in others:
        yield _build_process(PROCESS, str(holder["pid"]), holder["name"], holder.get("since"), [holder], owner, False)


def _build_process(
    kind: str,
    key: str,
    name: str,
    since: float | None,
    holders: Iterable[Mapping[str, Any]],
    owner: str | None,
    may_end: bool,
) -> dict[str, Any]:
    rows = list(holders)
    return {
        "kind": kind,
        "id": key,
        "name": name,
        "owner": owner,
        "since": since,
        "rssBytes": sum(one.get("rss_bytes") or 0 for one in rows),
        "gpuBytes": sum(one.get("gpu_bytes") or 0 for one in rows),
        "mine": may_end,
    }  # fmt: skip
