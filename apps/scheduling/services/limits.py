"""Changes of the limits of projects and members."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import DevEnvironment
from apps.clusters.selectors import read_zone_ids
from apps.common import wakeups
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.scheduling.models import Limits, UserLimits
from fermi.jobs.spec import Problem


@transaction.atomic
def set_limits(user: User, project: Project, values: Mapping[str, Any]) -> None:
    """Set all limits of a project (administrator). Running tasks go on; the queue follows at once. Raises
    ProblemsError."""
    access.require_administrator(user)
    before = Limits.objects.filter(project=project).first() or Limits(project=project)
    values, problems = validate_limits(values, before)
    if problems:
        raise ProblemsError(problems)
    changes = {name: value for name, value in values.items() if getattr(before, name) != value}
    if "budget" in changes:
        changes["budget_warned"] = ""
    Limits.objects.update_or_create(project=project, defaults={**changes, "updated_at": now(), "updated_by": user})
    audit.record_event(user, "limits.set", project.pk, project=project, **changes)
    wakeups.enqueue_after_commit("training.sweep")


def validate_limits(values: Mapping[str, Any], before: Limits) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values as they are stored, and all problems with them. What was allowed before may stay, even if no
    environment has that GPU type any more."""
    problems = []
    guaranteed, most = values.get("guaranteed_gpus"), values.get("most_gpus")
    if guaranteed is not None and most is not None and guaranteed > most:
        problems.append(Problem("guaranteedGpus", "LIMITS_CONTRADICT", {"found": guaranteed, "high": most}))
    types = list(dict.fromkeys(values.get("gpu_types") or ()))
    known = sorted(DevEnvironment.objects.exclude(gpu_type="").values_list("gpu_type", flat=True).distinct())
    for index, found in enumerate(types):
        if found not in known and found not in before.gpu_types:
            params = {"found": found, "known": ", ".join(known) or "–"}
            problems.append(Problem(f"gpuTypes.{index}", "GPU_TYPE_UNKNOWN", params))
    zones = []
    known_zones = read_zone_ids()
    for index, found in enumerate(values.get("zones") or ()):
        if found not in known_zones:
            problems.append(Problem(f"zones.{index}", "ZONE_UNKNOWN", {"zone": found}))
        elif known_zones[found] not in zones:
            zones.append(known_zones[found])
    priorities = list(dict.fromkeys(values.get("priorities") or ()))
    budget = values.get("budget")
    stored = {"gpu_types": types, "zones": zones, "priorities": priorities}
    return {**values, **stored, "budget": None if budget is None else round(budget, 2)}, problems


@transaction.atomic
def set_user_limits(user: User, project: Project, username: str, values: Mapping[str, Any]) -> None:
    """Set a member's limits (maintainer). Raises ApiError 404."""
    access.require_role(user, project, Role.MAINTAINER)
    member = Membership.objects.filter(project=project, user__username=username).first()
    if member is None:
        raise ApiError(404, "NOT_FOUND")
    UserLimits.objects.update_or_create(project=project, user_id=member.user_id, defaults=values)
    audit.record_event(user, "user-limits.set", username, project=project, **values)
    wakeups.enqueue_after_commit("training.sweep")


@transaction.atomic
def delete_user_limits(user: User, project: Project, username: str) -> None:
    """Delete a member's limits (maintainer). Raises ApiError 404."""
    access.require_role(user, project, Role.MAINTAINER)
    if not UserLimits.objects.filter(project=project, user__username=username).delete()[0]:
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "user-limits.delete", username, project=project)
    wakeups.enqueue_after_commit("training.sweep")
