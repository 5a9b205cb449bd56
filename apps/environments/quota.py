"""Limits of the environments, and of their GPUs, for a project and each of its members."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from apps.accounts.models import Project, User
from apps.environments.models import Hosted
from apps.environments.states import Wanted
from apps.scheduling import selectors
from apps.scheduling.models import UserLimits
from fermi.jobs.spec import Problem


def use(project: str | None = None) -> dict[Any, tuple[int, int]]:
    """Return the number of environments, and the GPUs of those that are to run, by project and by project and user
    name."""
    rows = Hosted.objects.all() if project is None else Hosted.objects.filter(environment__project=project)
    count: Counter[Any] = Counter()
    gpus: Counter[Any] = Counter()
    found = rows.values_list(
        "environment__project_id", "environment__owner__username", "wanted", "spec__gpu_count", "environment"
    )
    for key, owner, wanted, gpu_count, _ in found:
        for one in (key, (key, owner)):
            count[one] += 1
            gpus[one] += (gpu_count or 0) if wanted == Wanted.RUNNING else 0
    return {key: (count[key], gpus[key]) for key in count}


def problems(project: Project, owner: User | None, more: int, gpus: int) -> list[Problem]:
    """Return why `new_environments` more environments, or `new_gpus` more GPUs in running ones, exceed a limit: each
    problem has the limit, the use, and (in its text) who could raise it."""
    used = use(project.pk)
    row = selectors.limits_of(project)
    limits = {"max_environments": row.max_environments, "max_environment_gpus": row.max_environment_gpus} if row else {}
    found = list(_over(limits, used.get(project.pk, (0, 0)), more, gpus, "", {"project": project.name}))
    if owner is not None:
        own = UserLimits.objects.filter(project=project, user=owner).values().first()
        mine: Mapping[str, Any] = own or selectors.of_each_user(row)
        said = {"project": project.name, "user": owner.username}
        found += _over(mine, used.get((project.pk, owner.username), (0, 0)), more, gpus, "_USER", said)
    return found


def _over(
    limits: Mapping[str, Any], used: tuple[int, int], more: int, gpus: int, whose: str, said: Mapping[str, Any]
) -> Iterator[Problem]:
    most, most_gpus = limits.get("max_environments"), limits.get("max_environment_gpus")
    if more and most is not None and used[0] + more > most:
        params = {**said, "asked": more, "used": used[0], "high": most}
        yield Problem("", f"LIMIT{whose}_ENVIRONMENTS", params)
    if gpus and most_gpus is not None and used[1] + gpus > most_gpus:
        params = {**said, "asked": gpus, "used": used[1], "high": most_gpus}
        yield Problem("gpuCount", f"LIMIT{whose}_ENVIRONMENT_GPUS", params)
