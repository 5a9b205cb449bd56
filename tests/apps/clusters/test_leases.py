"""Leases under real concurrency: threads with connections of their own, on whichever database the suite runs."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.db import connection, transaction

from apps.accounts.models import Project
from apps.clusters import leases
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus, Lease, PortLease

T = TypeVar("T")
pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
IDS = [f"env-{n}" for n in range(6)]


@pytest.fixture(autouse=True)
def environments(transactional_db: None) -> None:
    project = Project.objects.create(name="one")
    cluster = Cluster.objects.create(name="local", backend="local")
    zone = AvailabilityZone.objects.create(name="here")
    for key in IDS:
        DevEnvironment.objects.create(pk=key, name=key, project=project, cluster=cluster, zone=zone)


def at_once(jobs: list[Callable[[], T]]) -> list[T]:
    """Runs the jobs in threads that start together."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T:
        start.wait()
        try:
            return job()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]


def held_by(holder: str) -> list[str]:
    return list(Lease.objects.filter(holder=holder).order_by("pk").values_list("pk", flat=True))


def test_leases_are_all_or_nothing() -> None:
    assert leases.acquire_leases(["env-1", "env-2"], "a") is None
    assert leases.acquire_leases(["env-0", "env-1", "env-2", "env-3"], "b") == [("env-1", "a"), ("env-2", "a")]
    assert held_by("b") == []
    assert leases.release_leases("a") == 2
    assert leases.acquire_leases(["env-0", "env-1"], "b") is None


def test_acquiring_a_held_lease_again_succeeds() -> None:
    assert leases.acquire_leases(["env-1", "env-2"], "a") is None
    assert leases.acquire_leases(["env-2", "env-1"], "a") is None
    assert held_by("a") == ["env-1", "env-2"]


def test_stopped_cordoned_and_removed_environments_cannot_be_leased() -> None:
    DevEnvironment.objects.filter(pk="env-0").update(status=EnvironmentStatus.STOPPED)
    DevEnvironment.objects.filter(pk="env-1").update(cordoned=True)
    wanted = ["env-0", "env-1", "env-2", "env-x"]
    assert leases.acquire_leases(wanted, "a") == [(key, leases.UNUSABLE_HOLDER) for key in ("env-0", "env-1", "env-x")]
    assert held_by("a") == []


def test_a_failed_acquisition_leaves_the_transaction_usable() -> None:
    leases.acquire_leases(["env-1"], "a")
    with transaction.atomic():
        Project.objects.create(name="made before")
        assert leases.acquire_leases(["env-1", "env-2"], "b")
        Project.objects.create(name="made after")
    assert Project.objects.filter(name__startswith="made").count() == 2
    assert held_by("b") == []


def test_of_many_concurrent_acquisitions_one_gets_all() -> None:
    for _ in range(5):
        answers = at_once([lambda n=n: leases.acquire_leases(reversed(IDS), f"task-{n}") for n in range(6)])
        assert answers.count(None) == 1
        [winner] = {lease.holder for lease in Lease.objects.all()}
        assert held_by(winner) == IDS
        assert all({by for _, by in answer} == {winner} for answer in answers if answer)
        assert leases.release_leases(winner) == len(IDS)


def test_overlapping_acquisitions_do_not_deadlock_or_hold_parts() -> None:
    wishes = {f"task-{n}": [IDS[n], IDS[(n + 1) % 6], IDS[(n + 3) % 6]] for n in range(6)}

    def insist(holder: str) -> int:
        """Takes and gives back until it has had its wish five times; how often it saw itself hold only a part."""
        parts = 0
        for _ in range(5):
            while leases.acquire_leases(wishes[holder], holder):
                parts += 0 < len(held_by(holder)) < 3
            parts += len(held_by(holder)) != 3
            leases.release_leases(holder)
        return parts

    assert at_once([lambda holder=holder: insist(holder) for holder in wishes]) == [0] * 6
    assert not Lease.objects.exists()


def test_a_port_has_one_holder_per_host() -> None:
    assert leases.acquire_port("h1", [29500, 29501], "a-1") == 29500
    assert leases.acquire_port("h1", [29500, 29501], "b-1") == 29501
    assert leases.acquire_port("h2", [29500], "c-1") == 29500
    assert leases.acquire_port("h1", [29502], "a-1") == 29500, "the one it has"
    with pytest.raises(leases.NoFreePortError):
        leases.acquire_port("h1", [29500, 29501], "d-1")
    assert leases.release_ports("a-1") == 1
    assert leases.acquire_port("h1", [29500], "d-1") == 29500


def test_concurrent_port_leases_are_different() -> None:
    candidates = list(range(29500, 29508))
    ports = at_once([lambda n=n: leases.acquire_port("h", candidates, f"{n}-1") for n in range(8)])
    assert sorted(ports) == candidates
    assert PortLease.objects.count() == 8
