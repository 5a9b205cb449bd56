"""Decides whether a node's ranks run inside of its dev environment, in its own container with its own packages, or
beside it.

An engine says for each environment what is possible (`Backend.ways`); the decision is made here for each environment by
itself, so one job may have both. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fermi.jobs.spec import PREFLIGHT, JobSpec, Problem, Way

RunIn: TypeAlias = Literal["auto", "environment", "beside"]
FIELD = "distributedConfig.runIn"
WAYS_KEPT = "waysKept"
"""An option of a pre-flight test that runs before a task: it keeps the task's run locations."""
MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class Ways:
    """Where an environment's ranks can run. `inside`, `beside`: why they cannot run there, as a code with its params;
    None: they can. `prefers`: which one is used where both are possible and the task names none, and why."""

    prefers: Way
    inside: Way | None = None
    beside: Way | None = None


def settle(job: JobSpec, known: Mapping[str, Ways]) -> tuple[JobSpec, list[Problem]]:
    """Return the job with the run location of each of its nodes, and what is wrong where none is possible. The
    locations are by node id; a node that is missing there stays unchanged, because its engine has one location alone. A
    pre-flight test keeps the locations of the task before which it runs."""
    if job.framework == PREFLIGHT and job.options.get(WAYS_KEPT):
        return job, []
    nodes, problems = [], list[Problem]()
    for node in job.nodes:
        ways = known.get(node.id)
        if ways is None:
            nodes.append(node)
            continue
        way, wrong = _one(job.run_in, ways)
        about = {"environment": node.name}
        nodes.append(replace(node, way=replace(way, params={**about, **way.params})))
        problems += (Problem(FIELD, one.code, {**about, **one.params}) for one in wrong)
    return replace(job, nodes=tuple(nodes)), problems


def warnings(job: JobSpec) -> list[Problem]:
    """Return, for a job whose locations are chosen, the warning that a location was asked for nodes whose engine has
    one alone."""
    names = [node.name for node in job.nodes if node.way is None]
    if job.run_in == "auto" or not names:
        return []
    shown = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
    return [Problem(FIELD, "RUN_IN_UNUSED", {"environments": shown})]


def _one(asked: RunIn, ways: Ways) -> tuple[Way, list[Way]]:
    """Return the location, and the reasons why it is impossible."""
    if asked == "environment":
        return Way(True, "WAY_INSIDE_ASKED"), [ways.inside] if ways.inside else []
    if asked == "beside":
        return Way(False, "WAY_BESIDE_ASKED"), [ways.beside] if ways.beside else []
    if ways.inside and ways.beside:
        return ways.prefers, [ways.inside, ways.beside]
    if ways.inside:
        return replace(ways.inside, inside=False), []
    if ways.beside:
        return replace(ways.beside, inside=True), []
    return ways.prefers, []
