"""Stores where a task's processes run, and gives the places of lost environments to spare ones.

an environment lost ─▶ its attempt ended ─▶ queued ─┬─▶ it is back              ─▶ the next attempt, as before
                                                    ├─▶ spares for all lost     ─▶ the next attempt, on the spares
                                                    └─▶ neither                 ─▶ it waits
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Q

from apps.clusters import leases, selectors
from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease
from apps.training.core import release, transitions
from apps.training.core.engine_access import get_backend, resolve_run_locations
from apps.training.core.task_store import build_job_columns, store_nodes
from apps.training.models import Task
from fermi.jobs import ranks
from fermi.jobs.spec import JobSpec, Node
from fermi.planning import validate

STATUS_LEFT_OUT = "leftOut"


def find_unusable_nodes(nodes: Iterable[Node], left_out: Iterable[str] = ()) -> dict[str, str]:
    """Return why each node that cannot train now is unusable, by its id. `left_out`: nodes that the task has to do
    without."""
    wanted = [node.id for node in nodes]
    found = DevEnvironment.objects.in_bulk(wanted)
    why = {}
    for key in wanted:
        environment = found.get(key)
        if environment is None:
            why[key] = "deleted"
        elif environment.status != EnvironmentStatus.RUNNING:
            why[key] = environment.status
        elif environment.cordoned:
            why[key] = "cordoned"
    return why | dict.fromkeys(set(left_out) & set(wanted), STATUS_LEFT_OUT)


def describe_first_unusable(job: JobSpec) -> dict[str, str]:
    """Return the parameters of the text ENVIRONMENT_UNAVAILABLE for the first unusable node; empty if all are
    usable."""
    lost = find_unusable_nodes(job.nodes, job.left_out)
    first = next((node for node in job.nodes if node.id in lost), None)
    return {"environment": first.name, "status": lost[first.id]} if first else {}


def replace_lost_nodes(task: Task) -> bool:
    """Give the places of all unusable environments to spares, in one transaction; return False, and change nothing, if
    not all can be replaced. Only between attempts: before the first one the task runs where its user said."""
    before = JobSpec.from_json(task.spec)
    if not task.attempt or not before.spares:
        return False
    lost = find_unusable_nodes(before.nodes, before.left_out)
    if not lost:
        return False
    taken = find_spares(task, before, lost)
    if taken is None:
        return False
    nodes = tuple(taken.get(node.id, node) for node in before.nodes)
    after = replace(before, nodes=nodes, master=taken[before.master].id if before.master in taken else before.master)
    checked = replace(after, resume_from="")  # where it goes on from has nothing to do with where it runs
    checked, impossible = resolve_run_locations(task.cluster, checked)
    if impossible or validate.find_problems(checked) or get_backend(task.cluster).problems(checked):
        return False
    if asked := after.elastic:
        everywhere = tuple(taken.get(node.id, node) for node in asked.nodes)
        first = taken[asked.master].id if asked.master in taken else asked.master
        after = replace(after, elastic=replace(asked, nodes=everywhere, master=first))
    return apply_placement(
        task,
        after,
        [
            ("ENVIRONMENT_REPLACED", {"environment": node.name, "status": lost[node.id], "by": taken[node.id].name})
            for node in before.nodes
            if node.id in taken
        ],
    )


def find_spares(task: Task, job: JobSpec, lost: Iterable[str]) -> dict[str, Node] | None:
    """Return the spare that could take the place of each lost node now, by the lost node's id; None if some have
    none."""
    wanted = set(lost)
    return _match_spares([node for node in job.nodes if node.id in wanted], _list_free_spares(task, job))


def apply_placement(task: Task, after: JobSpec, events: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
    """Have the task run on the nodes of `after` from its next attempt on, in one transaction, and record `events`.
    Return False if another task holds one of the nodes. Raises StaleTaskError if the task has changed since it was
    loaded."""
    wanted, had = ({node.id for node in job.nodes} for job in (after, JobSpec.from_json(task.spec)))
    with transitions.lock_task(task):
        if Task.objects.get(pk=task.pk).spec != task.spec:
            raise transitions.StaleTaskError(task.pk)
        if leases.list_held_environments(task.pk):  # one that waits for its turn holds nothing
            if leases.acquire_leases(wanted - had, task.pk):
                return False
            release.release_environments(task, had - wanted)
        Task.objects.filter(pk=task.pk).update(**build_job_columns(after))
        task.nodes.all().delete()
        store_nodes(task, after)
        for code, params in events:
            transitions.record_event(task.pk, task.attempt, "attempt", code, params)
    return True


def _list_free_spares(task: Task, job: JobSpec) -> list[Node]:
    """Return the spares that could train now and that no task holds, in the order in which they were named."""
    rows = DevEnvironment.objects.filter(
        pk__in=job.spares,
        cluster=task.cluster_id,
        status=EnvironmentStatus.RUNNING,
        cordoned=False,
    )
    rows = rows.filter(Q(project=task.project_id) | Q(shared=True))
    rows = rows.exclude(pk__in=[*(node.id for node in job.nodes), *job.left_out])
    rows = rows.exclude(pk__in=Lease.objects.exclude(holder=task.pk).values("environment"))
    return sorted(selectors.build_nodes(rows.select_related("zone")), key=lambda node: job.spares.index(node.id))


def _match_spares(lost: list[Node], spares: list[Node]) -> dict[str, Node] | None:
    """Return a spare for each lost node, cut to its number of processes, by the lost node's id; None if some have none.
    The largest is served first: a spare that is large enough for it is large enough for any other."""
    taken = {}
    for node in sorted(lost, key=lambda node: -node.processes):
        spare = next((spare for spare in spares if spare.processes >= node.processes), None)
        if spare is None:
            return None
        spares.remove(spare)
        [taken[node.id]] = ranks.select_first_ranks([spare], spare.id, node.processes)
    return taken
