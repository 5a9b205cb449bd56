"""Rules that give roles by the groups of an identity provider."""

from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import RoleRuleItem, RoleRulePreview, RoleRuleRequest


class RoleRules:
    """Rules that give roles by groups. Needs an administrator. What changes them needs the `fingerprint` of a preview
    of the same change, and raises ConflictError where it would now do something else."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[RoleRuleItem]:
        return Listing(self._transport, "/role-rules", {})

    def preview(self, rule: RoleRuleRequest | None = None, rule_id: str | None = None) -> RoleRulePreview:
        """Return what would change with a rule added (`rule`), replaced (both) or deleted (`rule_id`)."""
        given = {"rule": rule, "ruleId": rule_id}
        body = {name: value for name, value in given.items() if value is not None}
        return self._transport.call("POST", "/role-rules/preview", json=body, repeatable=True)

    def save(self, rule: RoleRuleRequest, fingerprint: str, rule_id: str | None = None) -> RoleRuleItem:
        """Add a rule, or replace the one with the id `rule_id`."""
        body = {**rule, "fingerprint": fingerprint}
        if rule_id is None:
            return self._transport.call("POST", "/role-rules", json=body)
        return self._transport.call("PUT", f"/role-rules/{quote(rule_id)}", json=body)

    def delete(self, rule_id: str, fingerprint: str) -> None:
        self._transport.call("DELETE", f"/role-rules/{quote(rule_id)}", params={"fingerprint": fingerprint})
