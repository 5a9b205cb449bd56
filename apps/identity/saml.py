"""Settings of a SAML 2.0 provider: what is wrong with given ones, and what allauth is told.

    {"entity_id": …, "sso_url": …, "x509": …}             the provider; `read_metadata` finds all three in its metadata
    {"attributes": {"email": ["mail"], "groups": […]}}    which attributes say what

The rest is not to be chosen: an assertion must be signed by the provider's certificate with SHA-256 or better, be meant
for this platform, be in its time, and answer a sign-in that this browser began here. So an assertion counts once, and
none opens a session unasked.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from onelogin.saml2.errors import OneLogin_Saml2_Error
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

MAX_METADATA_BYTES = 1 << 20
MAX_TEXT = 2_000
MAX_CERTIFICATE = 20_000
MAX_NAMES = 10
FIELDS = ("uid", "email", "email_verified", "first_name", "last_name", "username")
"""What an account has from a provider's attributes; groups are read from all attributes by `groups_claim`."""
REQUIRED = ("entity_id", "sso_url", "x509")
_OTHERS = ("attributes", "sp_entity_id")
_COMMON = ("create_users", "allowed_domains", "link_by_verified_email", "groups_claim")
_CERTIFICATE = re.compile(r"(?:-----BEGIN CERTIFICATE-----)?[A-Za-z0-9+/=\s]{100,}(?:-----END CERTIFICATE-----)?\s*")


def list_problems(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with a provider's settings: pairs of a field and a code."""
    problems = [(f"settings.{key}", "IDENTITY_SETTING_MISSING") for key in REQUIRED if not settings.get(key)]
    problems += [
        (f"settings.{key}"[:100], "IDENTITY_SETTING_UNKNOWN")
        for key in settings
        if key not in (*REQUIRED, *_OTHERS, *_COMMON)
    ]
    problems += [
        (f"settings.{key}", "IDENTITY_SETTING_NO_TEXT")
        for key in ("entity_id", "sp_entity_id")
        if key in settings and not _is_text(settings[key])
    ]
    if settings.get("sso_url") and not _is_address(settings["sso_url"]):
        problems.append(("settings.sso_url", "IDENTITY_SETTING_NO_ADDRESS"))
    if settings.get("x509") and not _is_certificate(settings["x509"]):
        problems.append(("settings.x509", "IDENTITY_SETTING_NO_CERTIFICATE"))
    if not _is_mapping(settings.get("attributes", {})):
        problems.append(("settings.attributes", "IDENTITY_SETTING_NO_TEXTS"))
    return problems


def read_metadata(xml: bytes, entity_id: str | None = None) -> dict[str, str]:
    """Return `entity_id`, `sso_url` and `x509` of a provider's metadata, of the entity `entity_id` where there are
    several. Raises ValueError for metadata that is too large, is not XML, or lacks one of them."""
    if len(xml) > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata has more than {MAX_METADATA_BYTES} bytes")
    try:
        found = OneLogin_Saml2_IdPMetadataParser.parse(xml, entity_id=entity_id).get("idp", {})
    except (OneLogin_Saml2_Error, ValueError, SyntaxError) as error:
        raise ValueError(f"the metadata cannot be read: {error}") from error
    certificates = found.get("x509certMulti", {}).get("signing") or [found.get("x509cert", "")]
    settings = {
        "entity_id": found.get("entityId", ""),
        "sso_url": found.get("singleSignOnService", {}).get("url", ""),
        "x509": certificates[0],
    }
    if missing := [name for name, value in settings.items() if not value]:
        raise ValueError(f"the metadata has no {missing[0]}")
    return settings


def make_allauth_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as allauth's SAML provider reads them."""
    attributes = settings.get("attributes", {})
    return {
        "idp": {name: settings[key] for name, key in zip(("entity_id", "sso_url", "x509cert"), REQUIRED, strict=True)},
        "sp": {"entity_id": settings["sp_entity_id"]} if settings.get("sp_entity_id") else {},
        "attribute_mapping": {key: list(names) for key, names in attributes.items() if key in FIELDS},
        "advanced": {
            "strict": True,
            "want_assertion_signed": True,
            "want_name_id": True,
            "want_attribute_statement": False,
            "reject_deprecated_algorithm": True,
            "reject_idp_initiated_sso": True,
        },
    }


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_address(value: Any) -> bool:
    """Return True for https, and for http on this machine: people type their passwords there."""
    if not _is_text(value):
        return False
    try:
        parts = urlsplit(value)
        host = parts.hostname
    except ValueError:
        return False
    local = parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")
    return bool(host) and not parts.username and (parts.scheme == "https" or local)


def _is_certificate(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_CERTIFICATE and bool(_CERTIFICATE.fullmatch(value.strip()))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        key in (*FIELDS, "groups")
        and isinstance(names, list)
        and len(names) <= MAX_NAMES
        and all(_is_text(name) for name in names)
        for key, names in value.items()
    )
