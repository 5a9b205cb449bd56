"""Assigns GPUs by index on engines that do not do so themselves (`EnvironmentBackend.gpus`): each GPU to one
environment. Emulated GPUs are not assigned."""

from collections.abc import Sequence

from django.db import transaction

from apps.clusters.models import DevEnvironment
from apps.environments.models import Gpu, Hosted
from fermi.engines.environments import EnvironmentBackend, EnvironmentSpec
from fermi.jobs.spec import Problem


class GpusTakenError(Exception):
    """Too few GPUs are free; `problem` names the holders."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def count_host_gpus(hosting: EnvironmentBackend, spec: EnvironmentSpec) -> int | None:
    """Return how many GPUs the host assigns by index; None if it assigns none so, or the environment needs none. Asks
    the engine."""
    return hosting.gpus(spec.host) if spec.gpu_count and not spec.emulated else None


def check_free_gpus(cluster: str, spec: EnvironmentSpec, host_gpus: int | None, claimed: int = 0) -> list[Problem]:
    """Return why the environment would not get its GPUs now; `claimed`: GPUs of other environments of the same
    request."""
    if host_gpus is None:
        return []
    holders = _list_holders(cluster, spec.host, spec.id)
    return (
        [] if host_gpus - len(holders) - claimed >= spec.gpu_count else [_make_taken_problem(spec, host_gpus, holders)]
    )


@transaction.atomic
def assign_gpus(hosted: Hosted, cluster: str, spec: EnvironmentSpec, host_gpus: int | None) -> list[int]:
    """Reserve the GPUs and store their indexes in the spec and the environment. Raises GpusTakenError."""
    numbers = reserve_gpus(hosted, cluster, spec, host_gpus)
    if hosted.spec.get("gpus") != numbers:
        hosted.spec = {**hosted.spec, "gpus": numbers}
        Hosted.objects.filter(pk=hosted.pk).update(spec=hosted.spec)
    environment = DevEnvironment.objects.get(pk=hosted.pk)
    if environment.engine.get("gpus", []) != numbers:
        environment.engine = {**environment.engine, "gpus": numbers}
        environment.save(update_fields=["engine"])
    return numbers


def reserve_gpus(hosted: Hosted, cluster: str, spec: EnvironmentSpec, host_gpus: int | None) -> list[int]:
    """Return the GPUs that the environment holds then: as many as it needs, the ones it held before if they suffice.
    Raises GpusTakenError."""
    if host_gpus is None:
        Gpu.objects.filter(hosted=hosted).delete()
        return list(range(spec.gpu_count)) if spec.emulated else []
    while True:
        with transaction.atomic():
            mine = _list_own_gpus(hosted, cluster, spec.host)
            Gpu.objects.filter(hosted=hosted).exclude(cluster=cluster, host=spec.host).delete()
            if surplus := mine[spec.gpu_count :]:
                Gpu.objects.filter(hosted=hosted, number__in=surplus).delete()
                mine = mine[: spec.gpu_count]
            holders = _list_holders(cluster, spec.host, hosted.pk)
            free = [number for number in range(host_gpus) if number not in holders and number not in mine]
            lacking = spec.gpu_count - len(mine)
            if lacking > len(free):
                raise GpusTakenError(_make_taken_problem(spec, host_gpus, holders))
            rows = [Gpu(hosted=hosted, cluster_id=cluster, host=spec.host, number=one) for one in free[:lacking]]
            Gpu.objects.bulk_create(rows, ignore_conflicts=True)
            mine = _list_own_gpus(hosted, cluster, spec.host)
            if len(mine) == spec.gpu_count:
                return mine
        # another environment took one of them; the others stay reserved


def release_gpus(hosted: Hosted) -> None:
    """Release all GPUs of the environment."""
    Gpu.objects.filter(hosted=hosted).delete()


def _list_own_gpus(hosted: Hosted, cluster: str, host: str) -> list[int]:
    rows = Gpu.objects.filter(hosted=hosted, cluster=cluster, host=host)
    return sorted(rows.values_list("number", flat=True))


def _list_holders(cluster: str, host: str, except_id: str) -> dict[int, str]:
    rows = Gpu.objects.filter(cluster=cluster, host=host).exclude(hosted=except_id)
    return dict(rows.values_list("number", "hosted__environment__name"))


def _make_taken_problem(spec: EnvironmentSpec, host_gpus: int, holders: dict[int, str]) -> Problem:
    named: Sequence[str] = sorted(set(holders.values()))
    params = {"asked": spec.gpu_count, "free": host_gpus - len(holders), "there": host_gpus, "host": spec.host or None,
              "holders": ", ".join(named) or None}  # fmt: skip
    return Problem("gpuCount", "ENVIRONMENT_GPUS_TAKEN", params)
