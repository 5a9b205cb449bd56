"""What an engine shows becomes environments, and stays in step with it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.accounts.models import Project, User
from apps.clusters import discovery, leases
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.environments.models import Look, MemoryLook
from fermi.engines.discovery import DiscoveredEnvironment

pytestmark = [pytest.mark.database, pytest.mark.django_db]

POD = DiscoveredEnvironment(
    "team/notebook-0", "notebook-0", "research", running=True, kind="jupyter", zone="z1", gpu_type="A100", gpu_count=2,
    cpu_cores=16, memory_gb=128, image="pytorch/pytorch", host="node-1", ip="10.0.0.7", started_at=1_790_000_000.0,
    engine={"namespace": "team", "node": "node-1", "resource": "nvidia.com/gpu"}, owner="ada",
)  # fmt: skip


@pytest.fixture
def cluster() -> Cluster:
    Project.objects.create(pk="project-r", name="research")
    return Cluster.objects.create(name="lab", backend="kubernetes")


def only() -> DevEnvironment:
    return DevEnvironment.objects.select_related("zone", "owner").get()


def test_a_discovered_pod_becomes_an_environment_of_its_project(cluster: Cluster) -> None:
    User.objects.create_user("ada")
    assert discovery.sync_environments(cluster, [POD])
    made = only()
    assert (made.name, made.project_id, made.status, made.kind) == ("notebook-0", "project-r", "running", "jupyter")
    assert (made.zone.name, made.gpu_type, made.gpu_count, made.emulated) == ("z1", "A100", 2, False)
    assert (made.cpu_cores, made.memory_gb, made.image) == (16, 128, "pytorch/pytorch")
    assert (made.host, made.ip, made.engine) == ("node-1", "10.0.0.7", dict(POD.engine))
    assert made.owner
    assert made.owner.username == "ada"
    assert made.started_at
    assert made.started_at.timestamp() == POD.started_at


def test_an_unchanged_discovery_writes_nothing(cluster: Cluster, django_assert_num_queries) -> None:
    discovery.sync_environments(cluster, [POD])
    with django_assert_num_queries(3):  # what is known; projects; the zone
        assert not discovery.sync_environments(cluster, [POD])


def test_ids_are_stable_over_restarts_and_differ_between_clusters(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [POD])
    key = only().pk
    DevEnvironment.objects.all().delete()
    discovery.sync_environments(cluster, [POD])
    assert only().pk == key
    discovery.sync_environments(Cluster.objects.create(name="other", backend="kubernetes"), [POD])
    names = dict(DevEnvironment.objects.values_list("cluster__name", "name"))
    assert names == {"lab": "notebook-0", "other": "team/notebook-0"}, "one name per project"


def test_a_change_updates_the_environment_but_not_what_users_set(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [POD])
    DevEnvironment.objects.update(cordoned=True, name="mine")
    assert discovery.sync_environments(
        cluster, [replace(POD, gpu_count=4, host="node-2", running=False, started_at=None)]
    )
    changed = only()
    assert (changed.gpu_count, changed.host, changed.status, changed.started_at) == (4, "node-2", "stopped", None)
    assert (changed.name, changed.cordoned) == ("mine", True)


def test_a_changed_kind_is_updated(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [POD])
    for told, kind in (("vscode", "vscode"), ("emacs", "custom")):
        assert discovery.sync_environments(cluster, [replace(POD, kind=told)])
        assert only().kind == kind


def test_an_environment_that_should_run_and_does_not_is_unhealthy(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [replace(POD, running=False, healthy=False)])
    assert only().status == "unhealthy"


def test_a_removed_pod_stops_its_environment_and_a_returned_one_starts_it(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [POD])
    assert discovery.sync_environments(cluster, [])
    assert (only().status, only().started_at) == ("stopped", None)
    assert only().gone_at
    assert not discovery.sync_environments(cluster, [])
    assert discovery.sync_environments(cluster, [POD])
    assert (only().status, only().gone_at) == ("running", None)


def test_an_environment_gone_for_long_is_deleted_unless_referenced(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [POD, replace(POD, key="team/held-0", name="held-0")])
    discovery.sync_environments(cluster, [])
    assert discovery.delete_gone_environments() == 0
    DevEnvironment.objects.update(gone_at=now() - discovery.KEEP_GONE_FOR - timedelta(minutes=1))
    held = DevEnvironment.objects.get(name="held-0")
    leases.Lease.objects.create(environment=held, holder="task-1")
    for one in DevEnvironment.objects.all():
        Look.objects.create(environment=one, asked_at=now())
        MemoryLook.objects.create(environment=one, asked_at=now())
    assert discovery.delete_gone_environments() == 1
    assert only() == held


def test_environments_of_other_clusters_and_registered_ones_are_untouched(cluster: Cluster) -> None:
    zone = AvailabilityZone.objects.create(name="z")
    DevEnvironment.objects.create(pk="by-hand", name="by-hand", project_id="project-r", cluster=cluster, zone=zone)
    discovery.sync_environments(Cluster.objects.create(name="other", backend="kubernetes"), [POD])
    assert not discovery.sync_environments(cluster, [])
    assert set(DevEnvironment.objects.values_list("status", flat=True)) == {"running"}


def test_a_pod_of_an_unknown_project_is_skipped(cluster: Cluster) -> None:
    assert discovery.sync_environments(cluster, [replace(POD, key="x/y", project="nobody"), POD])
    assert only().discovered_as == POD.key


def test_a_pod_without_a_zone_gets_one_named_after_its_cluster(cluster: Cluster) -> None:
    discovery.sync_environments(cluster, [replace(POD, zone="")])
    assert only().zone.name == "lab"
