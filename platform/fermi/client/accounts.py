"""API tokens, and projects with their members, secrets, limits and diagnosis rules."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    DiagnosisRules,
    DiagnosisRulesTest,
    Limits,
    LimitsRequest,
    MemberItem,
    ProjectItem,
    SecretItem,
    TokenCreated,
    TokenItem,
    UserLimits,
    UserLimitsRequest,
)


class Tokens:
    """The caller's own API tokens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[TokenItem]:
        """Return the caller's tokens, without their secret part."""
        return Listing(self._transport, "/tokens", {})

    def create(
        self,
        name: str,
        *,
        expires_in_days: int | None = None,
        scopes: Sequence[str] | None = None,
        projects: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> TokenCreated:
        """Create a token and return it. The secret itself is in this answer and never shown again. `expires_in_days`
        None: it does not expire. `scopes` (such as tasks:read), and ids of `projects` and `tasks`, narrow what it may
        do; None does not."""
        body: dict[str, Any] = {"name": name}
        if expires_in_days is not None:
            body["expiresInDays"] = expires_in_days
        limits = {"scopes": scopes, "projects": projects, "tasks": tasks}
        body |= {kind: list(values) for kind, values in limits.items() if values is not None}
        return self._transport.call("POST", "/tokens", json=body)

    def revoke(self, token_id: str) -> None:
        """Revoke a token. Raise NotFoundError for one that is not the caller's."""
        self._transport.call("DELETE", f"/tokens/{quote(token_id)}")

    def revoke_many(self, token_ids: Sequence[str] | None) -> int:
        """Revoke those of the caller's tokens that have these ids, or all of them for None, also the one in use.
        Return how many were revoked."""
        body = {"ids": None if token_ids is None else [*token_ids]}
        return int(self._transport.call("POST", "/tokens/revoke", json=body)["count"])


class Projects:
    """Projects that the caller may see. A member's `role` is viewer, member or maintainer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[ProjectItem]:
        return Listing(self._transport, "/projects", {})

    def get(self, project_id: str) -> ProjectItem:
        return self._transport.call("GET", f"/projects/{quote(project_id)}")

    def create(self, name: str) -> ProjectItem:
        return self._transport.call("POST", "/projects", json={"name": name})

    def rename(self, project_id: str, name: str) -> ProjectItem:
        return self._transport.call("PATCH", f"/projects/{quote(project_id)}", json={"name": name})

    def set_warm(self, project_id: str, warm: bool) -> ProjectItem:
        """Set whether a warm standby process, with the training stack imported, is kept in each of the project's
        environments that do not say otherwise (`environments.update(…, {"warm": True})`). Return the project."""
        return self._transport.call("PUT", f"/projects/{quote(project_id)}/warm", json={"warm": warm})

    def delete(self, project_id: str) -> None:
        self._transport.call("DELETE", f"/projects/{quote(project_id)}")

    def members(self, project_id: str) -> Listing[MemberItem]:
        return Listing(self._transport, f"/projects/{quote(project_id)}/members", {})

    def add_member(self, project_id: str, username: str, role: str = "member") -> MemberItem:
        body = {"username": username, "role": role}
        return self._transport.call("POST", f"/projects/{quote(project_id)}/members", json=body)

    def change_role(self, project_id: str, username: str, role: str) -> MemberItem:
        path = f"/projects/{quote(project_id)}/members/{quote(username)}"
        return self._transport.call("PATCH", path, json={"role": role})

    def remove_member(self, project_id: str, username: str) -> None:
        self._transport.call("DELETE", f"/projects/{quote(project_id)}/members/{quote(username)}")

    def secrets(self, project_id: str) -> Listing[SecretItem]:
        """Return the names of the project's secrets, and who set them when. Values are never returned."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/secrets", {})

    def set_secret(self, project_id: str, name: str, value: str) -> SecretItem:
        return self._transport.call("PUT", _secret_path(project_id, name), json={"value": value})

    def diagnosis_rules(self, project_id: str) -> DiagnosisRules:
        """Return the project's own diagnosis rules, as TOML."""
        return self._transport.call("GET", f"/projects/{quote(project_id)}/diagnosis-rules")

    def set_diagnosis_rules(self, project_id: str, text: str) -> DiagnosisRules:
        """Replace the project's diagnosis rules by the TOML text and return them. Raise InvalidRequestError for rules
        that are not valid."""
        return self._transport.call("PUT", f"/projects/{quote(project_id)}/diagnosis-rules", json={"text": text})

    def test_diagnosis_rules(self, project_id: str, log: str, text: str | None = None) -> DiagnosisRulesTest:
        """Return the findings for a rank that had printed `log`. `text`: rules to try instead of the project's."""
        body = {"log": log} if text is None else {"log": log, "text": text}
        path = f"/projects/{quote(project_id)}/diagnosis-rules/test"
        return self._transport.call("POST", path, json=body, repeatable=True)

    def limits(self, project_id: str) -> Limits:
        """Return the project's limits and its current usage."""
        return self._transport.call("GET", f"/projects/{quote(project_id)}/limits")

    def set_limits(self, project_id: str, limits: LimitsRequest) -> Limits:
        """Replace all limits of the project and return them. Needs an administrator."""
        return self._transport.call("PUT", f"/projects/{quote(project_id)}/limits", json=limits)

    def user_limits(self, project_id: str) -> Listing[UserLimits]:
        """Return each member's limits and current usage."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/limits/users", {})

    def set_user_limits(self, project_id: str, username: str, limits: UserLimitsRequest) -> UserLimits:
        """Replace the limits of one member, which take precedence over the default per member. Needs a maintainer."""
        path = f"/projects/{quote(project_id)}/limits/users/{quote(username)}"
        return self._transport.call("PUT", path, json=limits)

    def remove_user_limits(self, project_id: str, username: str) -> None:
        """Remove the limits of one member: the default per member applies again."""
        self._transport.call("DELETE", f"/projects/{quote(project_id)}/limits/users/{quote(username)}")

    def remove_secret(self, project_id: str, name: str) -> None:
        self._transport.call("DELETE", _secret_path(project_id, name))


def _secret_path(project_id: str, name: str) -> str:
    return f"/projects/{quote(project_id)}/secrets/{quote(name, safe='')}"
