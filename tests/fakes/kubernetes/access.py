"""Who may do what. Everything is allowed until a rule denies it."""

from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.kubernetes.errors import Refused

USER = "system:serviceaccount:fermi:fermi"


class Access:
    def __init__(self) -> None:
        self.denied: list[tuple[str, str, str]] = []

    def deny(self, verb: str = "*", resource: str = "*", namespace: str = "*") -> None:
        """`resource` as in `jobs.batch`, `pods`, `pods/log`."""
        self.denied.append((verb, resource, namespace))

    def allows(self, verb: str, resource: str, namespace: str) -> bool:
        return not any(
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

    def review(self, obj: dict[str, Any]) -> dict[str, Any]:
        """A SelfSubjectAccessReview, answered."""
        asked = obj["spec"].get("resourceAttributes") or {}
        resource = asked.get("resource", "*") + (f".{asked['group']}" if asked.get("group") else "")
        resource += f"/{asked['subresource']}" if asked.get("subresource") else ""
        allowed = self.allows(asked.get("verb", "*"), resource, asked.get("namespace", ""))
        return obj | {"status": {"allowed": allowed} | ({"reason": "RBAC: allowed by RoleBinding"} if allowed else {})}
