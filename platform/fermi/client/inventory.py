"""Clusters, datasets and models."""

from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    ClusterCreateRequest,
    ClusterItem,
    ClusterReport,
    DatasetCreateRequest,
    DatasetItem,
    DatasetVersionItem,
    ModelCreateRequest,
    ModelItem,
    PatchedClusterChangeRequest,
    VersionCreateRequest,
)


class Clusters:
    """Clusters: engines to train on. All but reading needs an administrator."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[ClusterItem]:
        return Listing(self._transport, "/clusters", {"search": search})

    def get(self, cluster_id: str) -> ClusterItem:
        return self._transport.call("GET", f"/clusters/{quote(cluster_id)}")

    def create(self, request: ClusterCreateRequest) -> ClusterItem:
        return self._transport.call("POST", "/clusters", json=request)

    def update(self, cluster_id: str, changes: PatchedClusterChangeRequest) -> ClusterItem:
        return self._transport.call("PATCH", f"/clusters/{quote(cluster_id)}", json=changes)

    def delete(self, cluster_id: str) -> None:
        self._transport.call("DELETE", f"/clusters/{quote(cluster_id)}")

    def check(self, cluster_id: str) -> ClusterReport:
        """Check whether the cluster can train and return the findings, with remedies; takes seconds."""
        return self._transport.call("POST", f"/clusters/{quote(cluster_id)}/check", repeatable=True)

    def notices(self) -> ClusterReport:
        """Return what an operator of the platform must know now; empty for other users."""
        return self._transport.call("GET", "/notices")


class Datasets:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[DatasetItem]:
        return Listing(self._transport, "/datasets", {"search": search})

    def get(self, dataset_id: str) -> DatasetItem:
        return self._transport.call("GET", f"/datasets/{quote(dataset_id)}")

    def create(self, request: DatasetCreateRequest) -> DatasetItem:
        """Create a dataset and its first version from a path on the platform's machine; it is prepared in the
        background."""
        return self._transport.call("POST", "/datasets", json=request)

    def versions(self, dataset_id: str) -> Listing[DatasetVersionItem]:
        return Listing(self._transport, f"/datasets/{quote(dataset_id)}/versions", {})

    def add_version(self, dataset_id: str, request: VersionCreateRequest) -> DatasetVersionItem:
        return self._transport.call("POST", f"/datasets/{quote(dataset_id)}/versions", json=request)


class Models:
    """Models: a recipe of the reference trainers and its defaults."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[ModelItem]:
        return Listing(self._transport, "/models", {"search": search})

    def create(self, request: ModelCreateRequest) -> ModelItem:
        return self._transport.call("POST", "/models", json=request)
