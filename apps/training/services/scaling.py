"""Estimates how well a choice of environments scales, and compares a task with its estimate."""

from statistics import median
from typing import NamedTuple

from apps.accounts import access
from apps.accounts.models import User
from apps.training.models import MetricPoint, Preflight, Task
from apps.training.states import TaskState
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec
from fermi.planning import plugins, scaling
from fermi.planning.scaling import NetworkSpeed, ScalingEstimate

MAX_POINTS = 200
"""Most metric points that a task's own speed is computed from."""


class ScalingComparison(NamedTuple):
    """Estimate and measured speed of a task. `off_by`: share by which the speed is outside of the expected range."""

    expected: ScalingEstimate | None
    tokens_per_second: float | None
    off_by: float | None


def estimate_scaling(user: User, job: JobSpec) -> ScalingEstimate | None:
    """Return the estimate for the job; None if it breaks a rule, or too little is known of the model."""
    if plugins.get_framework(job.framework).problems(job):
        return None
    return scaling.estimate_scaling(job, _find_measured_network(user, job))


def compare_scaling(user: User, task: Task) -> ScalingComparison:
    """Return the estimate, with what is known today, beside the speed of the newest attempt."""
    expected = estimate_scaling(user, JobSpec.from_json(task.spec))
    points = MetricPoint.objects.filter(task=task, attempt=task.attempt, rank=0).order_by("-pk")[:MAX_POINTS]
    told = [point.get("tokens_per_s") for point in points.values_list("values", flat=True)]
    speeds = [speed for speed in told if speed is not None]  # null: what was printed is no finite number
    found = median(speeds) if speeds else None
    off_by = scaling.compute_deviation(found, expected.tokens_per_second) if found and expected else None
    return ScalingComparison(expected, found, off_by)


def _find_measured_network(user: User, job: JobSpec) -> NetworkSpeed | None:
    """Return the network as measured by the newest pre-flight test of all these nodes; None if there is none. The query
    compares only the first and the last node."""
    nodes = [at.node for at in place_nodes(job.nodes, job.master)]
    if len(nodes) < 2:
        return None
    tests = Preflight.objects.filter(run__state=TaskState.SUCCEEDED, run__world_size__gte=len(nodes))
    for node in (nodes[0], nodes[-1]):
        tests = tests.filter(run__nodes__environment=node.id)
    newest = (
        access.filter_visible(tests, user, "run__project").order_by("-run__created_at").values_list("pk", "report")[:1]
    )
    return next((scaling.read_network_speed(report, nodes, key) for key, report in newest), None)
