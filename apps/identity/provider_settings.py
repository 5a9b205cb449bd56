"""What may be in a provider's settings, by kind, and what is wrong with given ones."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from apps.identity import saml_settings
from apps.identity.models import ProviderKind

MAX_TEXT = 2_000
MAX_ITEMS = 50

OPENID_KINDS = frozenset(
    (
        ProviderKind.OPENID_CONNECT,
        ProviderKind.GOOGLE,
        ProviderKind.GITLAB,
        ProviderKind.MICROSOFT,
        ProviderKind.OKTA,
        ProviderKind.KEYCLOAK,
        ProviderKind.AUTHENTIK,
    )
)
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}")

Check = Callable[[Any], str]
"""Returns the code of what is wrong with a value, or "" if nothing is."""


def check_text(value: Any) -> str:
    return "" if isinstance(value, str) and len(value) <= MAX_TEXT else "IDENTITY_SETTING_NO_TEXT"


def check_flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "IDENTITY_SETTING_NO_FLAG"


def check_texts(value: Any) -> str:
    if not isinstance(value, list) or len(value) > MAX_ITEMS or any(check_text(one) for one in value):
        return "IDENTITY_SETTING_NO_LIST"
    return ""


def check_domains(value: Any) -> str:
    if check_texts(value) or not all(_DOMAIN.fullmatch(one.lower()) for one in value):
        return "IDENTITY_SETTING_NO_DOMAINS"
    return ""


def check_address(value: Any) -> str:
    """Addresses of providers are https, except on this machine: who signs in is decided by what they answer."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return "IDENTITY_SETTING_NO_ADDRESS"
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "IDENTITY_SETTING_NO_ADDRESS"
    if not host or parts.username or parts.password or parts.fragment or parts.query:
        return "IDENTITY_SETTING_NO_ADDRESS"
    if parts.scheme == "https" or (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")):
        return ""
    return "IDENTITY_SETTING_NO_ADDRESS"


COMMON: Mapping[str, Check] = {
    "create_users": check_flag,  # whether a person without an account gets one (true)
    "allowed_domains": check_domains,  # of verified e-mail addresses; empty: all
    "link_by_verified_email": check_flag,  # whether a verified address opens the account that has it (false)
    "groups_claim": check_text,  # where the groups are in the claims ("groups")
}
OPENID: Mapping[str, Check] = {
    **COMMON,
    "server_url": check_address,
    "scopes": check_texts,  # beside openid, profile and email
    "fetch_userinfo": check_flag,
    "end_tokens": check_flag,  # whether API tokens end, too, when the provider no longer vouches for a person (true)
    "sign_out_there": check_flag,  # whether signing out here leads to the provider's page for it (false)
    "uid_claim": check_text,  # what a person is known by ("sub")
    "username_claim": check_text,  # ("preferred_username")
    "token_auth_method": check_text,  # client_secret_basic | client_secret_post; by default what the server offers
    "auth_params": lambda value: (
        "" if isinstance(value, dict) and not check_texts([*value, *value.values()]) else "IDENTITY_SETTING_NO_TEXTS"
    ),
}
VENDOR: Mapping[str, Check] = {
    "create_users": check_flag,
    "groups_claim": check_text,
    "fetch_groups": check_flag,  # whether departments and groups are read at each sign-in (false)
    "server_url": check_address,  # of the API, where the organisation has one of its own
    "authorize_url": check_address,  # of the page that people sign in at, where the organisation has one of its own
}
CHECKS: Mapping[str, Mapping[str, Check]] = {
    **dict.fromkeys(OPENID_KINDS, OPENID),
    ProviderKind.FEISHU: {**VENDOR, "tenant_key": check_text},
    ProviderKind.LARK: {**VENDOR, "tenant_key": check_text},
    ProviderKind.DINGTALK: {**VENDOR, "corp_id": check_text},
    ProviderKind.WECOM: {**VENDOR, "agent_id": check_text},
}
"""Known settings by kind. Kinds that are not in it check theirs themselves."""
REQUIRED: Mapping[str, str] = {
    **dict.fromkeys(OPENID_KINDS, "server_url"),
    ProviderKind.FEISHU: "tenant_key",
    ProviderKind.LARK: "tenant_key",
    ProviderKind.DINGTALK: "corp_id",
    ProviderKind.WECOM: "agent_id",
}
"""The setting that a kind cannot do without: whose people may sign in."""
RESERVED_PARAMETERS = frozenset(
    ("client_id", "redirect_uri", "scope", "response_type", "state", "nonce", "code_challenge", "code_challenge_method")
)


def check_settings(kind: str, client_id: str, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong: pairs of a field and a code."""
    if kind == ProviderKind.SAML:
        return saml_settings.list_problems(settings, COMMON)
    checks = CHECKS.get(kind)
    if checks is None:
        return []
    problems = [] if client_id else [("clientId", "IDENTITY_SETTING_MISSING")]
    for key, value in settings.items():
        check = checks.get(key)
        if code := "IDENTITY_SETTING_UNKNOWN" if check is None else check(value):
            problems.append((f"settings.{key}"[:100], code))
    if not settings.get(REQUIRED[kind]):
        problems.append((f"settings.{REQUIRED[kind]}", "IDENTITY_SETTING_MISSING"))
    if kind in OPENID_KINDS:
        given = settings.get("auth_params")
        if isinstance(given, dict) and RESERVED_PARAMETERS & set(given):
            problems.append(("settings.auth_params", "IDENTITY_SETTING_RESERVED"))
    return problems
