"""Who may do what. Everything is allowed until a rule denies it."""

from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.kubernetes.errors import Refused

USER = "system:serviceaccount:fermi:fermi"


class Access:
    def __init__(self) -> None:
        self.denied: list[tuple[str, str, str]] = []
        self.loading = False  # it has just begun, has not read roles yet and forbids everything (seen on 1.36)

    def deny(self, verb: str = "*", resource: str = "*", namespace: str = "*") -> None:
        """`resource` as in `jobs.batch`, `pods`, `pods/log`."""
        self.denied.append((verb, resource, namespace))

    def allows(self, verb: str, resource: str, namespace: str) -> bool:
        return not self.loading and not any(
            fnmatchcase(verb, v) and fnmatchcase(resource, r) and fnmatchcase(namespace, n) for v, r, n in self.denied
        )

    def check(self, verb: str, plural: str, group: str, subresource: str, namespace: str, name: str) -> None:
        full = (f"{plural}.{group}" if group else plural) + (f"/{subresource}" if subresource else "")
        if self.allows(verb, full, namespace):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        about = f'{plural}.{group} "{name}"' if group and name else f'{plural} "{name}"' if name else full
        what = plural + (f"/{subresource}" if subresource else "")
        message = f'{about} is forbidden: User "{USER}" cannot {verb} resource "{what}" in API group "{group}" {where}'
        raise Refused(403, "Forbidden", message, {"name": name, "group": group, "kind": plural})

    def check_owners(self, plural: str, group: str, namespace: str, obj: dict[str, Any]) -> None:
        """The admission plug-in OwnerReferencesPermissionEnforcement, on by default in OpenShift: who sets an owner
        must be allowed to delete the object, and where the reference blocks the owner's deletion, to set finalizers on
        the owner (kubernetes/kubernetes, plugin/pkg/admission/gc/gc_admission.go)."""
        owners = obj["metadata"].get("ownerReferences") or []
        name, full = obj["metadata"].get("name", ""), f"{plural}.{group}" if group else plural
        why = ""
        if owners and not self.allows("delete", full, namespace):
            why = "cannot set an ownerRef on a resource you can't delete: , <nil>"
        for owner in owners:
            kind, version = owner["kind"].lower() + "s", owner["apiVersion"].rpartition("/")[0]
            finalizers = (f"{kind}.{version}" if version else kind) + "/finalizers"
            if owner.get("blockOwnerDeletion") and not self.allows("update", finalizers, namespace):
                why = (
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers "
                    "on: , <nil>"
                )
        if why:
            about = {"name": name, "group": group, "kind": plural}
            raise Refused(403, "Forbidden", f'{full} "{name}" is forbidden: {why}', about)

    def review(self, obj: dict[str, Any]) -> dict[str, Any]:
        """A SelfSubjectAccessReview, answered."""
        asked = obj["spec"].get("resourceAttributes") or {}
        resource = asked.get("resource", "*") + (f".{asked['group']}" if asked.get("group") else "")
        resource += f"/{asked['subresource']}" if asked.get("subresource") else ""
        allowed = self.allows(asked.get("verb", "*"), resource, asked.get("namespace", ""))
        return obj | {"status": {"allowed": allowed} | ({"reason": "RBAC: allowed by RoleBinding"} if allowed else {})}
