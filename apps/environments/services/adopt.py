"""Turns environments that existed before into managed ones."""

from django.db import transaction

from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.clock import now
from apps.environments import gpu_allocation, specs, transitions
from apps.environments.models import Hosted, Run
from apps.environments.states import DesiredState, EnvironmentState
from fermi.engines.environments import EnvironmentSpec


@transaction.atomic
def adopt_environment(environment: DevEnvironment, host_gpus: int | None) -> Hosted | None:
    """Create a lifecycle with the environment's present sizes and state; where the engine starts runs on demand,
    nothing is started. `host_gpus`: GPUs that its host assigns by index. Returns None if it has a lifecycle already, or
    if others hold its GPUs. Load it with its zone."""
    if Hosted.objects.filter(pk=environment.pk).exists():
        return None
    runs, moment = environment.status == EnvironmentStatus.RUNNING, now()
    spec = EnvironmentSpec(
        id=environment.pk,
        name=environment.name,
        project=environment.project_id,
        run=0,
        kind=environment.kind,
        image=environment.image,
        gpu_type=environment.gpu_type,
        gpu_count=environment.gpu_count,
        emulated=environment.emulated,
        cpu_cores=environment.cpu_cores,
        memory_gb=environment.memory_gb,
        zone=environment.zone.name,
    )
    hosted = Hosted.objects.create(
        environment=environment,
        spec=specs.dump_spec(spec),
        state=EnvironmentState.RUNNING if runs else EnvironmentState.STOPPED,
        wanted=DesiredState.RUNNING if runs else DesiredState.STOPPED,
        state_since=moment,
        run=1 if runs else 0,
        due_at=moment,
        active_at=moment,
    )
    if environment.status not in (EnvironmentStatus.RUNNING, EnvironmentStatus.STOPPED):
        DevEnvironment.objects.filter(pk=environment.pk).update(status=EnvironmentStatus.STOPPED, started_at=None)
    if runs:
        try:
            gpu_allocation.assign_gpus(hosted, environment.cluster_id, spec, host_gpus)
        except gpu_allocation.GpusTakenError:
            transaction.set_rollback(True)
            return None
        Run.objects.create(
            environment=environment.pk,
            number=1,
            name=environment.name,
            project_id=environment.project_id,
            owner_id=environment.owner_id,
            zone=environment.zone_id,
            gpu_type=environment.gpu_type,
            gpu_count=environment.gpu_count,
            created_at=moment,
            running_at=moment,
        )
    transitions.record_event(hosted, "ENVIRONMENT_ADOPTED", {})
    return hosted


def update_sizes(environment: DevEnvironment) -> None:
    """Give the next run the sizes that the machine has now."""
    hosted = Hosted.objects.filter(pk=environment.pk).first()
    if hosted is not None:
        sizes = {name: getattr(environment, name) for name in ("cpu_cores", "memory_gb", "gpu_type", "gpu_count")}
        if any(hosted.spec[name] != value for name, value in sizes.items()):
            Hosted.objects.filter(pk=hosted.pk).update(spec={**hosted.spec, **sizes})
