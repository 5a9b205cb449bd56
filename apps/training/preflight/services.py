"""Requests, lists, finds and stops pre-flight tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters import selectors as clusters
from apps.common.errors import ApiError, ProblemsError
from apps.training.models import Preflight
from apps.training.preflight import runs
from apps.training.services import actions
from apps.training.services.environment_choice import check_foreign, find_named_environments
from apps.training.states import STATES_BY_STATUS
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import plugins

MAX_REPORTS_READ = 20
"""Most reports that are searched for measurements."""


def create_preflight(
    user: User, *, environment_ids: Sequence[str], master: str | None, level: str, framework: str
) -> Preflight:
    """Start a pre-flight test of the environments and return it. Raises ProblemsError with all problems."""
    problems: list[Problem] = []
    environments = find_named_environments(user, environment_ids, "environmentIds", problems)
    if master is not None and master not in environment_ids:
        allowed = ", ".join(environment_ids) or "–"
        problems.append(Problem("masterNode", "MASTER_NOT_SELECTED", {"master": master, "allowed": allowed}))
    try:
        plugins.get_framework(framework)
    except UnknownNameError as unknown:
        problems.append(Problem("framework", unknown.code, unknown.params))
    mine = (one.project_id for one in environments if access.get_role(user, one.project_id))
    project = next(mine, environments[0].project_id if environments else "")
    problems += check_foreign(project, environments, environment_ids, "environmentIds")
    if problems:
        raise ProblemsError(problems)
    access.require_role(user, project, Role.MEMBER)
    job = JobSpec(
        task_id="", project=project, framework=plugins.resolve_framework_name(framework),
        nodes=tuple(clusters.build_nodes(environments)), master=master or environments[0].pk,
        master_port=settings.MASTER_PORTS.start,
    )  # fmt: skip
    test = runs.start_test(user, environments[0].cluster, job, level)
    audit.record_event(user, "preflight.create", test.pk, project=project)
    return find_preflight(user, test.pk)


def list_preflights(user: User, filters: Mapping[str, Any]) -> QuerySet[Preflight]:
    """Return the pre-flight tests that the user may see and that match `filters`."""
    rows = _query_preflights(user)
    if status := filters.get("status"):
        rows = rows.filter(run__state__in=STATES_BY_STATUS[status])
    if environment := filters.get("environment"):
        rows = rows.filter(run__nodes__environment=environment)
    if word := filters.get("search"):
        rows = rows.filter(Q(run__id__icontains=word) | Q(run__name__icontains=word))
    return rows


def list_zone_links(user: User, environment_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the newest measurements between two of these environments in different zones, one per pair."""
    mine = clusters.list_visible_environments(user).filter(pk__in=environment_ids)
    zones = dict(mine.values_list("pk", "zone__name"))
    tests = _query_preflights(user).filter(run__nodes__environment__in=zones, run__ended_at__isnull=False).distinct()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for test in tests.order_by("-run__created_at")[:MAX_REPORTS_READ]:
        for pair in test.report.get("pairs", ()):
            ends = pair["from"], pair["to"]
            apart = len({zones.get(end) for end in ends} - {None}) == 2
            if apart and pair.get("rttMs") is not None and ends not in found:
                found[ends] = {
                    "from": ends[0], "to": ends[1],
                    "rttMs": pair["rttMs"], "bandwidthMbps": pair.get("bandwidthMbps"),
                    "preflightId": test.pk, "at": test.run.ended_at,
                }  # fmt: skip
    return list(found.values())


def find_preflight(user: User, key: str) -> Preflight:
    """Return the pre-flight test. Raises ApiError 404."""
    test = _query_preflights(user).filter(pk=key).first()
    if test is None:
        raise ApiError(404, "NOT_FOUND")
    return test


def _query_preflights(user: User) -> QuerySet[Preflight]:
    rows = Preflight.objects.select_related("run__owner").prefetch_related("run__nodes")
    return access.filter_visible(
        rows.annotate(may_change=access.build_may_change_expression(user, "run__project")), user, "run__project"
    )


def stop_preflight(user: User, key: str) -> Preflight:
    """Request a stop of the test and return it. Asking again changes nothing."""
    actions.stop_task_of_any_kind(user, find_preflight(user, key).pk)
    return find_preflight(user, key)
