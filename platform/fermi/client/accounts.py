"""Who may do what: API tokens, projects and their members."""

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
        return Listing(self._transport, "/tokens", {})

    def create(self, name: str, *, expires_in_days: int | None = None) -> TokenCreated:
        """The token itself is in this answer and never again."""
        body: dict[str, Any] = {"name": name}
        if expires_in_days is not None:
            body["expiresInDays"] = expires_in_days
        return self._transport.call("POST", "/tokens", json=body)

    def revoke(self, token_id: str) -> None:
        self._transport.call("DELETE", f"/tokens/{quote(token_id)}")


class Projects:
    """`role` is viewer, member or maintainer."""

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
        """Whether a process stands by, with the training stack imported, in each of its environments that does not say
        otherwise (`environments.update(…, {"warm": True})`)."""
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
        """Names, and who set them when; values are never given back."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/secrets", {})

    def set_secret(self, project_id: str, name: str, value: str) -> SecretItem:
        return self._transport.call("PUT", _secret(project_id, name), json={"value": value})

    def diagnosis_rules(self, project_id: str) -> DiagnosisRules:
        """What the project knows of its own errors, as TOML."""
        return self._transport.call("GET", f"/projects/{quote(project_id)}/diagnosis-rules")

    def set_diagnosis_rules(self, project_id: str, text: str) -> DiagnosisRules:
        return self._transport.call("PUT", f"/projects/{quote(project_id)}/diagnosis-rules", json={"text": text})

    def test_diagnosis_rules(self, project_id: str, log: str, text: str | None = None) -> DiagnosisRulesTest:
        """What would be said of a rank that had printed `log`; `text`: rules to try instead of the project's."""
        body = {"log": log} if text is None else {"log": log, "text": text}
        path = f"/projects/{quote(project_id)}/diagnosis-rules/test"
        return self._transport.call("POST", path, json=body, repeatable=True)

    def limits(self, project_id: str) -> Limits:
        """What the project may use, and what it uses now."""
        return self._transport.call("GET", f"/projects/{quote(project_id)}/limits")

    def set_limits(self, project_id: str, limits: LimitsRequest) -> Limits:
        """Replaces all of them; takes the administrator."""
        return self._transport.call("PUT", f"/projects/{quote(project_id)}/limits", json=limits)

    def user_limits(self, project_id: str) -> Listing[UserLimits]:
        """What each member may use, and uses now."""
        return Listing(self._transport, f"/projects/{quote(project_id)}/limits/users", {})

    def set_user_limits(self, project_id: str, username: str, limits: UserLimitsRequest) -> UserLimits:
        """Of one member, in place of those that each has; takes a maintainer."""
        path = f"/projects/{quote(project_id)}/limits/users/{quote(username)}"
        return self._transport.call("PUT", path, json=limits)

    def remove_user_limits(self, project_id: str, username: str) -> None:
        self._transport.call("DELETE", f"/projects/{quote(project_id)}/limits/users/{quote(username)}")

    def remove_secret(self, project_id: str, name: str) -> None:
        self._transport.call("DELETE", _secret(project_id, name))


def _secret(project_id: str, name: str) -> str:
    return f"/projects/{quote(project_id)}/secrets/{quote(name, safe='')}"
