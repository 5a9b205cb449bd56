"""What may refuse an object although it is valid: namespaces, service accounts, quotas, Pod Security, webhooks.

It stands before everybody who creates: a Job controller whose pod is refused gets the same answer as a client.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.kubernetes import quantities
from tests.fakes.kubernetes.errors import forbidden, not_found, policy_denied, webhook_denied
from tests.fakes.kubernetes.resources import (
    CLAIMS,
    NAMESPACES,
    POD_CLASSES,
    PODS,
    QUOTAS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    Resource,
)  # fmt: skip
from tests.fakes.kubernetes.store import Object, Store

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
Webhook = Callable[[Resource, Object], None]


class Admission:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.webhooks: list[Webhook] = []

    def deny(self, resource: str, name: str = "*", message: str = "not today", *, policy: bool = False) -> None:
        """A webhook, or a `policy` of the API server's own, that refuses objects of such names from now on."""

        def refuse(kind: Resource, obj: Object) -> None:
            found = obj["metadata"]["name"]
            if resource in (kind.plural, kind.full_name) and fnmatchcase(found, name):
                raise policy_denied(kind, found, message) if policy else webhook_denied("policy.example.com", message)

        self.webhooks.append(refuse)

    def check(self, resource: Resource, obj: Object) -> None:
        """Raises the API server's refusals."""
        if resource.namespaced:
            self._namespace(resource, obj)
        for webhook in self.webhooks:
            webhook(resource, obj)
        if resource is CLAIMS:
            self._class(obj)
        if resource is PODS:
            self._service_account(obj)
            self._priority(obj)
            self._security(obj)
        self._quotas(resource, obj)

    def check_change(self, resource: Resource, old: Object, new: Object) -> None:
        """kubernetes/kubernetes: plugin/pkg/admission/storage/persistentvolume/resize/admission.go."""
        if resource is not CLAIMS:
            return
        before, after = (quantities.number(one["spec"]["resources"]["requests"]["storage"]) for one in (old, new))
        if after <= before:
            return
        name = new["metadata"]["name"]
        if (old.get("status") or {}).get("phase") != "Bound":
            raise forbidden(CLAIMS, name, "Only bound persistent volume claims can be expanded")
        found = self.store.get(STORAGE_CLASSES, "", new["spec"].get("storageClassName") or "")
        if not (found or {}).get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            raise forbidden(CLAIMS, name, f"{why}support resize")

    def _class(self, claim: Object) -> None:
        """The default one, where the claim names none: plugin/pkg/admission/storage/storageclass/setdefault."""
        marked = (one["metadata"] for one in self.store.all(STORAGE_CLASSES))
        default = next((meta["name"] for meta in marked if (meta.get("annotations") or {}).get(DEFAULT_CLASS)), None)
        if default and "storageClassName" not in claim["spec"]:
            claim["spec"]["storageClassName"] = default

    def _namespace(self, resource: Resource, obj: Object) -> None:
        name = obj["metadata"]["namespace"]
        namespace = self.store.get(NAMESPACES, "", name)
        if namespace is None:
            raise not_found(NAMESPACES, name)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            raise forbidden(resource, obj["metadata"]["name"], why)

    def _service_account(self, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        name = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = name
        if self.store.get(SERVICE_ACCOUNTS, meta["namespace"], name) is None:
            why = f'error looking up service account {meta["namespace"]}/{name}: serviceaccount "{name}" not found'
            raise forbidden(PODS, meta["name"], why)

    def _priority(self, pod: Object) -> None:
        """kubernetes/kubernetes: plugin/pkg/admission/priority/admission.go."""
        name = pod["spec"].get("priorityClassName")
        if not name:
            return
        if (found := self.store.get(POD_CLASSES, "", name)) is None:
            raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        pod["spec"]["priority"] = found["value"]

    def _security(self, pod: Object) -> None:
        namespace = self.store.get(NAMESPACES, "", pod["metadata"]["namespace"])
        level = ((namespace or {})["metadata"].get("labels") or {}).get("pod-security.kubernetes.io/enforce")
        if level == "restricted" and (found := list(restricted(pod["spec"]))):
            why = f'violates PodSecurity "restricted:latest": {", ".join(found)}'
            raise forbidden(PODS, pod["metadata"]["name"], why)

    def _quotas(self, resource: Resource, obj: Object) -> None:
        for quota in self.store.all(QUOTAS, obj["metadata"].get("namespace", "")) if resource.namespaced else []:
            asked = _counted(resource, obj)
            used: Counter[str] = Counter()
            for other in self.store.all(resource, obj["metadata"]["namespace"]):
                if (other.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                    used.update(_counted(resource, other))
            hard = {name: quantities.number(value) for name, value in quota["spec"]["hard"].items()}
            over = [name for name in sorted(hard) if name in asked and asked[name] + used[name] > hard[name]]
            if over:
                parts = [
                    f"{label}: " + ",".join(f"{name}={_text(values[name])}" for name in over)
                    for label, values in (("requested", asked), ("used", used), ("limited", hard))
                ]
                why = f"exceeded quota: {quota['metadata']['name']}, {', '.join(parts)}"
                raise forbidden(resource, obj["metadata"]["name"], why)


def _text(value: Any) -> str:
    value = Decimal(value)
    return str(int(value)) if value == int(value) else f"{int(value * 1000)}m"


def _counted(resource: Resource, obj: Object) -> Counter[str]:
    counted: Counter[str] = Counter({f"count/{resource.full_name}": 1, resource.plural: 1})
    if resource is PODS:
        for name, value in quantities.requests(obj["spec"]).items():
            counted[f"requests.{name}"] += value
            if name in ("cpu", "memory"):
                counted[name] += value
    return counted


VOLUMES_ALLOWED = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def restricted(spec: dict[str, Any]) -> Iterator[str]:
    """How a pod violates the `restricted` Pod Security level."""
    whole = spec.get("securityContext") or {}
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    own = {container["name"]: container.get("securityContext") or {} for container in containers}

    def told(names: list[str]) -> str:
        return f"container{'s' if len(names) > 1 else ''} " + ", ".join(f'"{name}"' for name in names)

    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"host namespaces ({field}=true)"
    if bad := [name for name, context in own.items() if context.get("privileged")]:
        yield f"privileged ({told(bad)} must not set securityContext.privileged=true)"
    if bad := [name for name, context in own.items() if context.get("allowPrivilegeEscalation") is not False]:
        yield f"allowPrivilegeEscalation != false ({told(bad)} must set securityContext.allowPrivilegeEscalation=false)"
    if bad := [name for name, c in own.items() if "ALL" not in ((c.get("capabilities") or {}).get("drop") or [])]:
        yield f'unrestricted capabilities ({told(bad)} must set securityContext.capabilities.drop=["ALL"])'
    if bad := [
        name for name, c in own.items() if set((c.get("capabilities") or {}).get("add") or []) - {"NET_BIND_SERVICE"}
    ]:
        yield f"unrestricted capabilities ({told(bad)} must not include additional capabilities)"
    if bad := [v["name"] for v in spec.get("volumes") or [] if not (set(v) - {"name"}) <= VOLUMES_ALLOWED]:
        yield f"restricted volume types (volumes {', '.join(bad)} use restricted volume types)"
    if bad := [name for name, c in own.items() if c.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True]:
        yield f"runAsNonRoot != true (pod or {told(bad)} must set securityContext.runAsNonRoot=true)"
    if bad := [name for name, c in own.items() if c.get("runAsUser", whole.get("runAsUser")) == 0]:
        yield f"runAsUser=0 (pod or {told(bad)} must not set runAsUser=0)"
    profiles = {n: (c.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type") for n, c in own.items()}
    if bad := [name for name, kind in profiles.items() if kind not in ("RuntimeDefault", "Localhost")]:
        to = 'to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {told(bad)} must set securityContext.seccompProfile.type {to})"
