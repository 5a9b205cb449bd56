"""Settings of a SAML 2.0 provider, and what is wrong with given ones.

    {"metadata_url": …}                                   read when the settings are saved, and each day from then on
    {"metadata": "<md:EntityDescriptor …"}                read once, and not stored
    {"entity_id": …, "sso_url": …, "x509": …}             what is read from it, or given; certificates in PEM
    {"attributes": {"email": ["mail"], "groups": […]}}    which attributes say what

The rest is not to be chosen: see `apps.identity.saml.messages`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

MAX_TEXT = 2_000
MAX_METADATA_TEXT = 300_000
MAX_CERTIFICATES = 10
MAX_CERTIFICATES_TEXT = 40_000
MAX_NAMES = 10
FIELDS = ("uid", "email", "email_verified", "first_name", "last_name", "username", "groups")
"""What is read from a provider's attributes."""
REQUIRED = ("entity_id", "sso_url", "x509")
TEXTS = ("entity_id", "sp_entity_id")
DEFAULT_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "email": (
        "email",
        "mail",
        "urn:oid:0.9.2342.19200300.100.1.3",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
    ),
    "first_name": (
        "firstName",
        "givenName",
        "urn:oid:2.5.4.42",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname",
    ),
    "last_name": (
        "lastName",
        "sn",
        "urn:oid:2.5.4.4",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname",
    ),
    "username": ("username", "uid", "urn:oid:0.9.2342.19200300.100.1.1"),
    "groups": (
        "groups",
        "memberOf",
        "urn:oid:1.3.6.1.4.1.5923.1.5.1.1",
        "http://schemas.xmlsoap.org/claims/Group",
        "http://schemas.microsoft.com/ws/2008/06/identity/claims/groups",
    ),
}
"""Names that providers use unless they are told otherwise: plain ones, those of LDAP (RFC 4519, eduPerson) and those of
Microsoft. None says by what a person is known: that is the NameID, unless the settings name an attribute."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]{100,}")

Check = Callable[[Any], str]


def list_problems(settings: Mapping[str, Any], common: Mapping[str, Check] | None = None) -> list[tuple[str, str]]:
    """Return what is wrong with a provider's settings: pairs of a field and a code. `common`: checks of the settings
    that all kinds have."""
    checks = {**CHECKS, **(common or {})}
    problems = [(f"settings.{key}", "IDENTITY_SETTING_MISSING") for key in REQUIRED if not settings.get(key)]
    for key, value in settings.items():
        if key in REQUIRED and not value:
            continue
        check = checks.get(key)
        if code := "IDENTITY_SETTING_UNKNOWN" if check is None else check(value):
            problems.append((f"settings.{key}"[:100], code))
    return problems


def list_certificates(text: str) -> list[str]:
    """Return the certificates of a text, each as the base64 between the lines of PEM. Raises ValueError."""
    found = _PEM.findall(text)
    if not found and _BASE64.fullmatch(text):
        found = [f"-----BEGIN CERTIFICATE-----\n{text.strip()}\n-----END CERTIFICATE-----"]
    if not 0 < len(found) <= MAX_CERTIFICATES or _PEM.sub("", text).strip() not in ("", text.strip()):
        raise ValueError(f"not one to {MAX_CERTIFICATES} certificates")
    for pem in found:
        x509.load_pem_x509_certificate(pem.encode())
    return ["".join(pem.split("-----")[2].split()) for pem in found]


def get_attribute_names(settings: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Return the attributes that say `field`, the most trusted one first."""
    chosen = settings.get("attributes", {}).get(field)
    return tuple(chosen) if chosen else DEFAULT_ATTRIBUTES.get(field, ())


def _check_text(value: Any) -> str:
    usable = isinstance(value, str) and len(value) <= MAX_TEXT and not re.search(r"[\x00-\x20'\"<>]", value)
    return "" if usable else "IDENTITY_SETTING_NO_TEXT"


def _check_address(value: Any) -> str:
    """Accept https, and http on this machine: people type their passwords there."""
    if _check_text(value):
        return "IDENTITY_SETTING_NO_ADDRESS"
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "IDENTITY_SETTING_NO_ADDRESS"
    local = parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")
    usable = host and not parts.username and not parts.fragment and (parts.scheme == "https" or local)
    return "" if usable else "IDENTITY_SETTING_NO_ADDRESS"


def _check_certificates(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_CERTIFICATES_TEXT:
        return "IDENTITY_SETTING_NO_CERTIFICATE"
    try:
        list_certificates(value)
    except ValueError:
        return "IDENTITY_SETTING_NO_CERTIFICATE"
    return ""


def _check_attributes(value: Any) -> str:
    usable = isinstance(value, Mapping) and all(
        key in FIELDS
        and isinstance(names, list)
        and 0 < len(names) <= MAX_NAMES
        and all(isinstance(name, str) and 0 < len(name) <= MAX_TEXT for name in names)
        for key, names in value.items()
    )
    return "" if usable else "IDENTITY_SETTING_NO_ATTRIBUTES"


CHECKS: Mapping[str, Check] = {
    "entity_id": _check_text,
    "sso_url": _check_address,
    "x509": _check_certificates,
    "metadata_url": _check_address,
    "sp_entity_id": _check_text,  # by what the provider knows the platform; the address of its metadata otherwise
    "attributes": _check_attributes,
    "vouches_for_emails": lambda value: "" if isinstance(value, bool) else "IDENTITY_SETTING_NO_FLAG",
}
