"""Nobody's memory is taken unawares: which processes hold memory in the environments that a task would use, and what
can be done about them.

It is told from what was last seen of each run (`Hosted.seen`), so that a page may ask at every key: no keeper is
dialled. Only ending a kernel dials one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import F

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.compiled import Compiled, keys
from apps.common.errors import ApiError
from apps.environments import reaching
from apps.environments.models import Hosted
from apps.notices.services.telling import tell
from fermi.keeper import wire
from fermi.launch.errors import BackendError

KERNEL, PROCESS = HOLDERS = ("kernel", "process")


_RUNNING = Compiled(
    lambda **among: (
        Hosted.objects.filter(pk__in=list(among.values()), environment__status=EnvironmentStatus.RUNNING)
        .order_by("environment__name")
        .values(
            "pk",
            "seen",
            name=F("environment__name"),
            project=F("environment__project"),
            owner=F("environment__owner"),
            owner_name=F("environment__owner__username"),
        )
    )
)


def in_use(environments: Iterable[str], user: User | None = None) -> list[dict[str, Any]]:
    """Of each environment in which something holds memory: what, by whom, since when; those with the most of a GPU
    first. `mine`: `user` may end it."""
    found: list[dict[str, Any]] = []
    if not (among := keys(environments)):
        return found
    for row in _RUNNING.ask(**among):
        mine = user is not None and _may_end(user, row["owner"], row["project"])
        if processes := list(_processes(row, mine)):
            found.append({"environmentId": row["pk"], "environment": row["name"], "processes": processes})
    return found


def named(found: Iterable[Mapping[str, Any]]) -> str:
    """For a text: `lab (train.ipynb), cv (python)`."""
    return ", ".join(f"{one['environment']} ({', '.join(each['name'] for each in one['processes'])})" for one in found)


def end_kernel(user: User, environment: DevEnvironment, kernel: str) -> None:
    """Ends somebody's own kernel; load the environment with its cluster. A maintainer may end anybody's."""
    access.require(user, environment.project_id, Role.MEMBER)
    if not _may_end(user, environment.owner_id, environment.project_id):
        owner = environment.owner.username if environment.owner else None
        raise ApiError(403, "KERNEL_OF_ANOTHER", environment=environment.name, owner=owner)
    try:
        with reaching.dial(environment) as stream:
            answer = wire.ask(stream, {"open": "end-kernel", "kernel": kernel})
    except BackendError as error:
        raise ApiError(409, error.code, "", **error.params) from error
    except (OSError, wire.WireError) as error:
        answer = {"code": str(error)}
    if not answer.get("ok"):
        why = answer.get("code")
        raise ApiError(409, "KERNEL_NOT_ENDED", environment=environment.name, kernel=kernel, why=why)
    audit.record(user, "environment.end-kernel", environment.pk, project=environment.project_id, kernel=kernel)


def ask_owner(user: User, environment: DevEnvironment) -> None:
    """Tells the owner that somebody waits for it; asked again by the same person it is one message."""
    access.require(user, environment.project_id, Role.MEMBER)
    if environment.owner_id is None:
        raise ApiError(409, "ENVIRONMENT_WITHOUT_OWNER", environment=environment.name)
    held = named(in_use([environment.pk]))
    if not held:
        raise ApiError(409, "ENVIRONMENT_NOT_IN_USE", environment=environment.name)
    tell(
        "environment_wanted",
        f"{environment.pk} {user.pk}",
        "NOTICE_ENVIRONMENT_WANTED",
        {"environment": environment.name, "by": user.username, "held": held},
        project=environment.project_id,
        owner=environment.owner_id,
        link=f"/environments/{environment.pk}",
    )
    audit.record(user, "environment.ask-owner", environment.pk, project=environment.project_id)


def _may_end(user: User, owner: int | None, project: str | None) -> bool:
    return owner == user.pk or access.role_in(user, project) is Role.MAINTAINER


def _processes(row: Mapping[str, Any], mine: bool) -> Iterable[dict[str, Any]]:
    """A kernel that is busy or holds memory, and whatever else does; what belongs to a kernel is told with it."""
    activity = row["seen"].get("activity") or {}
    kernels = {one["id"]: one for one in activity.get("kernels") or ()}
    owner = row["owner_name"]
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
            yield _told(KERNEL, key, kernel["name"], kernel.get("since"), holders, owner, mine)
    for holder in others:
        yield _told(PROCESS, str(holder["pid"]), holder["name"], holder.get("since"), [holder], owner, False)


def _told(
    kind: str,
    key: str,
    name: str,
    since: float | None,
    holders: Iterable[Mapping[str, Any]],
    owner: str | None,
    mine: bool,
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
        "mine": mine,
    }  # fmt: skip
