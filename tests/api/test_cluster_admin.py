"""Clusters in Django's admin."""

import json

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.clusters.models import Cluster


@pytest.fixture
def site(db: None) -> Client:
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(User.objects.create_superuser("root"), "allauth.account.auth_backends.AuthenticationBackend")
    return client


def test_a_cluster_needs_a_connection_that_its_backend_understands(site: Client) -> None:
    form = {"name": "lab", "backend": "kubernetes", "connection": json.dumps({"token": "s3cret"})}
    refused = site.post("/admin/clusters/cluster/add/", form)
    assert "A connection has no key token." in refused.content.decode()
    assert not Cluster.objects.exists()
    form["connection"] = json.dumps({"in_cluster": True, "namespace": "training"})
    assert site.post("/admin/clusters/cluster/add/", form).status_code == 302
    assert Cluster.objects.get().connection == {"in_cluster": True, "namespace": "training"}


def test_the_admin_action_reports_the_check_of_a_cluster(site: Client) -> None:
    cluster = Cluster.objects.create(name="local", backend="local", connection={"python": "/no/such/python"})
    action = {"action": "check_clusters", "_selected_action": [cluster.pk]}
    page = site.post("/admin/clusters/cluster/", action, follow=True).content.decode()
    assert "The interpreter /no/such/python cannot be run" in page
    assert "is writable" in page
