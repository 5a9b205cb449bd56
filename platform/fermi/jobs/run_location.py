"""Decides whether a node's ranks run inside of its dev environment, in its own container with its own packages, or
beside it.

An engine says for each environment what is possible (`Backend.find_run_locations`); the decision is made here for each
environment by itself, so one job may have both. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fermi.jobs.spec import PREFLIGHT, JobSpec, Problem, RunLocation

RunIn: TypeAlias = Literal["auto", "environment", "beside"]
FIELD = "distributedConfig.runIn"
LOCATIONS_KEPT = "waysKept"
"""An option of a pre-flight test that runs before a task: it keeps the task's run locations."""
MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class RunLocations:
    """Where an environment's ranks can run. `inside`, `beside`: why they cannot run there, as a code with its params;
    None: they can. `prefers`: which one is used where both are possible and the task names none, and why."""

    prefers: RunLocation
    inside: RunLocation | None = None
    beside: RunLocation | None = None


def choose_run_locations(job: JobSpec, locations: Mapping[str, RunLocations]) -> tuple[JobSpec, list[Problem]]:
    """Return the job with the run location of each of its nodes, and what is wrong where none is possible. The
    locations are by node id; a node that is missing there stays unchanged, because its engine has one location alone. A
    pre-flight test keeps the locations of the task before which it runs."""
    if job.framework == PREFLIGHT and job.options.get(LOCATIONS_KEPT):
        return job, []
    nodes, problems = [], list[Problem]()
    for node in job.nodes:
        ways = locations.get(node.id)
        if ways is None:
            nodes.append(node)
            continue
        way, wrong = _choose_location(job.run_in, ways)
        about = {"environment": node.name}
        nodes.append(replace(node, way=replace(way, params={**about, **way.params})))
        problems += (Problem(FIELD, one.code, {**about, **one.params}) for one in wrong)
    return replace(job, nodes=tuple(nodes)), problems


def find_warnings(job: JobSpec) -> list[Problem]:
    """Return, for a job whose locations are chosen, the warning that a location was asked for nodes whose engine has
    one alone."""
    names = [node.name for node in job.nodes if node.way is None]
    if job.run_in == "auto" or not names:
        return []
    shown = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
    return [Problem(FIELD, "RUN_IN_UNUSED", {"environments": shown})]


def _choose_location(run_in: RunIn, locations: RunLocations) -> tuple[RunLocation, list[RunLocation]]:
    """Return the location, and the reasons why it is impossible."""
    if run_in == "environment":
        return RunLocation(True, "WAY_INSIDE_ASKED"), [locations.inside] if locations.inside else []
    if run_in == "beside":
        return RunLocation(False, "WAY_BESIDE_ASKED"), [locations.beside] if locations.beside else []
    if locations.inside and locations.beside:
        return locations.prefers, [locations.inside, locations.beside]
    if locations.inside:
        return replace(locations.inside, inside=False), []
    if locations.beside:
        return replace(locations.beside, inside=True), []
    return locations.prefers, []
