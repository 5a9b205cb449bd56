"""Limits of the environments, and of their GPUs, for a project and each of its members."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from apps.accounts.models import Project, User
from apps.environments.models import Hosted
from apps.environments.states import DesiredState
from apps.scheduling import selectors
from apps.scheduling.models import UserLimits
from fermi.jobs.spec import Problem


def count_usage(project: str | None = None) -> dict[Any, tuple[int, int]]:
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
            gpus[one] += (gpu_count or 0) if wanted == DesiredState.RUNNING else 0
    return {key: (count[key], gpus[key]) for key in count}


def check_quota(project: Project, owner: User | None, new_environments: int, new_gpus: int) -> list[Problem]:
    """Return why `new_environments` more environments, or `new_gpus` more GPUs in running ones, exceed a limit: each
    problem has the limit, the use, and (in its text) who could raise it."""
    used = count_usage(project.pk)
    row = selectors.get_limits(project)
    limits = {"max_environments": row.max_environments, "max_environment_gpus": row.max_environment_gpus} if row else {}
    found = list(
        _find_exceeded(limits, used.get(project.pk, (0, 0)), new_environments, new_gpus, "", {"project": project.name})
    )
    if owner is not None:
        own = UserLimits.objects.filter(project=project, user=owner).values().first()
        mine: Mapping[str, Any] = own or selectors.get_default_user_limits(row)
        said = {"project": project.name, "user": owner.username}
        found += _find_exceeded(
            mine, used.get((project.pk, owner.username), (0, 0)), new_environments, new_gpus, "_USER", said
        )
    return found


def _find_exceeded(
    limits: Mapping[str, Any],
    used: tuple[int, int],
    new_environments: int,
    new_gpus: int,
    code_part: str,
    base_params: Mapping[str, Any],
) -> Iterator[Problem]:
    most, most_gpus = limits.get("max_environments"), limits.get("max_environment_gpus")
    if new_environments and most is not None and used[0] + new_environments > most:
        params = {**base_params, "asked": new_environments, "used": used[0], "high": most}
        yield Problem("", f"LIMIT{code_part}_ENVIRONMENTS", params)
    if new_gpus and most_gpus is not None and used[1] + new_gpus > most_gpus:
        params = {**base_params, "asked": new_gpus, "used": used[1], "high": most_gpus}
        yield Problem("gpuCount", f"LIMIT{code_part}_ENVIRONMENT_GPUS", params)
