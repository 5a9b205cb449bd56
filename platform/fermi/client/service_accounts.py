"""Service accounts of a project, and the rules by which pipelines get tokens of them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    ExchangeRuleItem,
    ExchangeRuleRequest,
    OwnedTokenItem,
    PatchedExchangeRuleChangeRequest,
    ServiceAccountItem,
    TokenCreated,
)


class ServiceAccounts:
    """Service accounts of projects that the caller maintains. `role` is viewer, member or maintainer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project_id: str) -> Listing[ServiceAccountItem]:
        return Listing(self._transport, _path(project_id), {})

    def create(self, project_id: str, name: str, role: str = "member") -> ServiceAccountItem:
        return self._transport.call("POST", _path(project_id), json={"name": name, "role": role})

    def change_role(self, project_id: str, name: str, role: str) -> None:
        self._transport.call("PATCH", _path(project_id, name), json={"role": role})

    def delete(self, project_id: str, name: str) -> None:
        """Delete a service account with its tokens and exchange rules. Its tasks go on."""
        self._transport.call("DELETE", _path(project_id, name))

    def create_token(
        self,
        project_id: str,
        account: str,
        name: str,
        *,
        expires_in_days: int | None = None,
        scopes: Sequence[str] | None = None,
    ) -> TokenCreated:
        """Create a token of a service account. The secret itself is in this answer and never shown again."""
        body: dict[str, Any] = {"name": name}
        if expires_in_days is not None:
            body["expiresInDays"] = expires_in_days
        if scopes is not None:
            body["scopes"] = [*scopes]
        return self._transport.call("POST", f"{_path(project_id, account)}/tokens", json=body)

    def tokens(self, project_id: str) -> Listing[OwnedTokenItem]:
        """Return the tokens of the project's service accounts, and those that are limited to this project."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/tokens", {})

    def revoke_token(self, project_id: str, token_id: str) -> None:
        self._transport.call("DELETE", f"/projects/{quote(project_id)}/tokens/{quote(token_id)}")

    def exchange_rules(self, project_id: str) -> Listing[ExchangeRuleItem]:
        """Return the rules by which pipelines get tokens of the project's service accounts."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/exchange-rules", {})

    def create_exchange_rule(self, project_id: str, rule: ExchangeRuleRequest) -> ExchangeRuleItem:
        return self._transport.call("POST", f"/projects/{quote(project_id)}/exchange-rules", json=rule)

    def change_exchange_rule(
        self, project_id: str, rule_id: str, changes: PatchedExchangeRuleChangeRequest
    ) -> ExchangeRuleItem:
        path = f"/projects/{quote(project_id)}/exchange-rules/{quote(rule_id)}"
        return self._transport.call("PATCH", path, json=changes)

    def delete_exchange_rule(self, project_id: str, rule_id: str) -> None:
        self._transport.call("DELETE", f"/projects/{quote(project_id)}/exchange-rules/{quote(rule_id)}")


def _path(project_id: str, name: str | None = None) -> str:
    path = f"/projects/{quote(project_id)}/service-accounts"
    return path if name is None else f"{path}/{quote(name)}"
