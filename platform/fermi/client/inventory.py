"""What tasks are made of: environments, datasets, models."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.listing import Listing
from fermi.client.series import telemetry_params
from fermi.client.transport import Transport
from fermi.client.types import (
    ClusterCreateRequest,
    ClusterItem,
    ClusterReport,
    DatasetCreateRequest,
    DatasetItem,
    DatasetVersionItem,
    EnvironmentDetail,
    EnvironmentItem,
    EnvironmentRegisterRequest,
    EnvironmentSummary,
    MachineTelemetry,
    ModelCreateRequest,
    ModelItem,
    PatchedClusterChangeRequest,
    PatchedEnvironmentChangeRequest,
    Timeline,
    VersionCreateRequest,
)


class Clusters:
    """Engines to train on. All but looking takes the administrator."""

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
        """Whether it is fit to train on, and what to do where it is not; takes seconds."""
        return self._transport.call("POST", f"/clusters/{quote(cluster_id)}/check", repeatable=True)

    def notices(self) -> ClusterReport:
        """What whoever runs the platform has to know of it now; empty for others."""
        return self._transport.call("GET", "/notices")


class Environments:
    """Dev environments: where training runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        zone: str | Sequence[str] | None = None,
        status: str | Sequence[str] | None = None,
        gpu_type: str | Sequence[str] | None = None,
        kind: str | Sequence[str] | None = None,
        min_gpus: int | None = None,
        search: str | None = None,
        ordering: str | None = None,
    ) -> Listing[EnvironmentItem]:
        """Several zones, statuses, … mean any of them; `ordering` is a column such as `gpuCount`, or `-gpuCount`."""
        filters = {
            "zone": zone,
            "status": status,
            "gpuType": gpu_type,
            "kind": kind,
            "minGpus": min_gpus,
            "search": search,
            "ordering": ordering,
        }
        return Listing(self._transport, "/dev-environments", filters)

    def get(self, environment_id: str) -> EnvironmentDetail:
        return self._transport.call("GET", f"/dev-environments/{quote(environment_id)}")

    def create(self, request: EnvironmentRegisterRequest) -> EnvironmentDetail:
        """Registers a machine by hand; takes a maintainer."""
        return self._transport.call("POST", "/dev-environments", json=request)

    def update(self, environment_id: str, changes: PatchedEnvironmentChangeRequest) -> EnvironmentDetail:
        return self._transport.call("PATCH", f"/dev-environments/{quote(environment_id)}", json=changes)

    def delete(self, environment_id: str) -> None:
        self._transport.call("DELETE", f"/dev-environments/{quote(environment_id)}")

    def summary(self, environment_ids: Sequence[str], master: str | None = None) -> EnvironmentSummary:
        """What these environments are together, and what is worth knowing before they are used together."""
        body: dict[str, Any] = {"environmentIds": [*environment_ids]}
        if master is not None:
            body["masterNode"] = master
        return self._transport.call("POST", "/dev-environments/summary", json=body, repeatable=True)

    def timeline(self, *, begins: str | None = None, ends: str | None = None, project: str | None = None) -> Timeline:
        """Who had each environment, who has it until when, who gets it next, and when it is reserved or maintained.
        Times are ISO 8601: from a day ago on by default, and for two days."""
        params = {"from": begins, "to": ends, "project": project}
        return self._transport.call("GET", "/environments/timeline", params=params)

    def telemetry(
        self,
        environment_id: str,
        *,
        metrics: Sequence[str] = (),
        begins: str | None = None,
        ends: str | None = None,
        points: int | None = None,
    ) -> MachineTelemetry:
        """What its machine and GPUs used, as series on one grid, and which tasks had it; of the last hour unless
        `begins` or `ends` (ISO 8601) say otherwise."""
        params = telemetry_params(metrics, begins, ends, points)
        return self._transport.call("GET", f"/dev-environments/{quote(environment_id)}/telemetry", params=params)


class Datasets:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[DatasetItem]:
        return Listing(self._transport, "/datasets", {"search": search})

    def get(self, dataset_id: str) -> DatasetItem:
        return self._transport.call("GET", f"/datasets/{quote(dataset_id)}")

    def create(self, request: DatasetCreateRequest) -> DatasetItem:
        """A dataset and its first version, from a path on the platform's machine; it is prepared in the background."""
        return self._transport.call("POST", "/datasets", json=request)

    def versions(self, dataset_id: str) -> Listing[DatasetVersionItem]:
        return Listing(self._transport, f"/datasets/{quote(dataset_id)}/versions", {})

    def add_version(self, dataset_id: str, request: VersionCreateRequest) -> DatasetVersionItem:
        return self._transport.call("POST", f"/datasets/{quote(dataset_id)}/versions", json=request)


class Models:
    """A model is a recipe of the reference trainers and its defaults."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[ModelItem]:
        return Listing(self._transport, "/models", {"search": search})

    def create(self, request: ModelCreateRequest) -> ModelItem:
        return self._transport.call("POST", "/models", json=request)
