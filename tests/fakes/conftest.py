"""The real client, on the fake cluster."""

from types import SimpleNamespace

import pytest
from kubernetes import client, config

from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.fixtures import kubernetes  # noqa: F401


@pytest.fixture
def clients(kubernetes: FakeCluster) -> SimpleNamespace:  # noqa: F811
    """`core`, `batch`, `custom`, … of PyPI's kubernetes, for the cluster's kubeconfig."""
    api = config.new_client_from_config(str(kubernetes.kubeconfig))
    return SimpleNamespace(
        api=api, core=client.CoreV1Api(api), batch=client.BatchV1Api(api), custom=client.CustomObjectsApi(api),
        version=client.VersionApi(api), apis=client.ApisApi(api), auth=client.AuthorizationV1Api(api),
        coordination=client.CoordinationV1Api(api),
    )  # fmt: skip
