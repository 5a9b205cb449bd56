"""The kinds that the fake serves."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """`versions`: those served, the preferred one first. `feature`: what must be installed for it to be served."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    feature: str = ""

    @property
    def full_name(self) -> str:
        """`jobs.batch`, as error messages have it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def api_version(self, version: str = "") -> str:
        version = version or self.versions[0]
        return f"{self.group}/{version}" if self.group else version

    def __repr__(self) -> str:
        return self.full_name


STATUS = ("status",)
V1 = ("v1",)
KUEUE, KUEUE_VERSIONS = "kueue.x-k8s.io", ("v1beta2", "v1beta1")
DRA, DRA_VERSIONS = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")

NAMESPACES = Resource("", V1, "namespaces", "Namespace", False, STATUS)
NODES = Resource("", V1, "nodes", "Node", False, STATUS)
PODS = Resource("", V1, "pods", "Pod", True, ("status", "log", "eviction", "binding", "portforward", "exec"))
SERVICES = Resource("", V1, "services", "Service", True, STATUS)
CONFIGMAPS = Resource("", V1, "configmaps", "ConfigMap")
SECRETS = Resource("", V1, "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", V1, "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", V1, "events", "Event")
CLAIMS = Resource("", V1, "persistentvolumeclaims", "PersistentVolumeClaim", True, STATUS)
QUOTAS = Resource("", V1, "resourcequotas", "ResourceQuota", True, STATUS)
STATEFUL_SETS = Resource("apps", V1, "statefulsets", "StatefulSet", True, STATUS)
LEASES = Resource("coordination.k8s.io", V1, "leases", "Lease")
JOBS = Resource("batch", V1, "jobs", "Job", True, STATUS)
ACCESS_REVIEWS = Resource("authorization.k8s.io", V1, "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
JOBSETS = Resource("jobset.x-k8s.io", ("v1alpha2",), "jobsets", "JobSet", True, STATUS, "jobset")
CLUSTER_QUEUES = Resource(KUEUE, KUEUE_VERSIONS, "clusterqueues", "ClusterQueue", False, STATUS, "kueue")
LOCAL_QUEUES = Resource(KUEUE, KUEUE_VERSIONS, "localqueues", "LocalQueue", True, STATUS, "kueue")
WORKLOADS = Resource(KUEUE, KUEUE_VERSIONS, "workloads", "Workload", True, STATUS, "kueue")
CLASSES = Resource(KUEUE, KUEUE_VERSIONS, "workloadpriorityclasses", "WorkloadPriorityClass", False, (), "kueue")
POSITIONS = Resource(f"visibility.{KUEUE}", KUEUE_VERSIONS, "localqueues", "LocalQueue", True, ("pendingworkloads",),
                     "visibility")  # fmt: skip
POD_CLASSES = Resource("scheduling.k8s.io", V1, "priorityclasses", "PriorityClass", False)
STORAGE_CLASSES = Resource("storage.k8s.io", V1, "storageclasses", "StorageClass", False)
FLAVORS = Resource(KUEUE, KUEUE_VERSIONS, "resourceflavors", "ResourceFlavor", False, (), "kueue")
RESOURCE_CLAIMS = Resource(DRA, DRA_VERSIONS, "resourceclaims", "ResourceClaim", True, STATUS, "dra")
DEVICE_CLASSES = Resource(DRA, DRA_VERSIONS, "deviceclasses", "DeviceClass", False, (), "dra")

ALL = (
    NAMESPACES, NODES, PODS, SERVICES, CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, EVENTS, CLAIMS, QUOTAS, STATEFUL_SETS,
    LEASES, JOBS, ACCESS_REVIEWS, JOBSETS, CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, FLAVORS, RESOURCE_CLAIMS,
    DEVICE_CLASSES, CLASSES, POD_CLASSES, POSITIONS, STORAGE_CLASSES,
)  # fmt: skip
FEATURES = frozenset(resource.feature for resource in ALL if resource.feature)
_BY_PATH = {(resource.group, resource.plural): resource for resource in ALL}
_BY_KIND = {(resource.group, resource.kind): resource for resource in ALL}


def find(group: str, plural: str) -> Resource | None:
    return _BY_PATH.get((group, plural))


def of_kind(api_version: str, kind: str) -> Resource | None:
    return _BY_KIND.get((api_version.rpartition("/")[0], kind))


def named(name: str) -> Resource:
    """By plural name, with or without its group. Raises KeyError."""
    for resource in ALL:
        if name in (resource.plural, resource.full_name):
            return resource
    raise KeyError(name)


def served(features: Iterable[str]) -> list[Resource]:
    installed = {"", *features}
    return [resource for resource in ALL if resource.feature in installed]
