"""The reconciler dies at its k-th line, over a whole life of an environment; whoever comes next finishes it, nothing
is started twice, and nothing is left."""

import pytest

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.environments import reconcile, services
from apps.environments.models import Gpu, Hosted, Run, Template
from apps.environments.services import CreateRequest, lifecycle
from fermi.planning import plugins
from tests.fakes.environments import Machine
from tests.kills import run_until_killed

pytestmark = pytest.mark.django_db
WATCHED = (
    "apps/environments/reconcile.py", "apps/environments/actions.py", "apps/environments/transitions.py",
    "apps/environments/gpu_allocation.py", "tests/fakes/environments.py",
)  # fmt: skip
"""The reconciler is killed in these files alone."""
EVERY = 61


def sweep(dies_at: int) -> int:
    """How many lines it came to; it dies at one of them."""
    return run_until_killed(reconcile.reconcile_due, WATCHED, dies_at)


def passes(dies_at: int, rounds: int = 6) -> int:
    """The first one dies; the others find what it left."""
    lines = 0
    for number in range(rounds):
        Hosted.objects.exclude(due_at=None).update(due_at=now(), claimed_at=None)
        lines += sweep(dies_at if number == 0 else 0)
    return lines


def life(machine: Machine, user: User, name: str, dies_at: int) -> int:
    made = services.create_environment(user, CreateRequest("template-x", "p", name))
    lines = passes(dies_at)
    assert Hosted.objects.get(pk=made.pk).state == "running"
    for act in (
        lifecycle.restart_environment,
        lifecycle.stop_environment,
        lifecycle.start_environment,
        lifecycle.delete_environment,
    ):
        act(user, DevEnvironment.objects.select_related("cluster", "project", "owner").get(pk=made.pk))
        lines = max(lines, passes(dies_at))
    assert not DevEnvironment.objects.filter(pk=made.pk).exists()
    assert [run.number for run in Run.objects.filter(environment=made.pk)] == [1, 2, 3]
    assert not Run.objects.filter(environment=made.pk, ended_at=None).exists()
    assert not machine.disks
    assert not machine.runs
    assert not Gpu.objects.exists()
    return lines


@pytest.mark.database
def test_an_environment_completes_its_lifecycle_wherever_the_reconciler_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(gpus=2)
    monkeypatch.setattr(plugins, "get_environment_backend", lambda backend, connection: machine)
    user, project = User.objects.create(username="u"), Project.objects.create(pk="p", name="p")
    Membership.objects.create(user=user, project=project, role=Role.MEMBER)
    cluster = Cluster.objects.create(name="c", backend="local")
    AvailabilityZone.objects.create(name="z")
    Template.objects.create(pk="template-x", name="x", cluster=cluster, gpu_count=2)
    longest = life(machine, user, "whole", 0)
    assert longest > EVERY
    for dies_at in range(1, min(longest, 7 * EVERY), EVERY):
        life(machine, user, f"dies-at-{dies_at}", dies_at)
