"""Reads FERMI_LDAP_…: the directory whose people sign in with their password there. Imports little."""

import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from server.env import PIP_INSTALL, InvalidSettingError, read_flag

PACKAGES = "'django-auth-ldap>=5.4,<6'"
GROUP_TYPES = ("groupOfNames", "groupOfUniqueNames", "posixGroup", "activeDirectory")


@dataclass(frozen=True, slots=True)
class LdapSettings:
    """`uri`: one or several addresses, separated by spaces. `start_tls`: before anything is sent to an `ldap://`."""

    uri: str
    user_search: str
    user_filter: str = "(uid=%(user)s)"
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    group_search: str = ""
    group_type: str = GROUP_TYPES[0]
    start_tls: bool = True
    ca_file: str = ""
    name: str = "LDAP"
    create_users: bool = True


def read_ldap() -> LdapSettings | None:
    """Return the settings, None without FERMI_LDAP_URI. Raise InvalidSettingError."""
    uri = " ".join(os.environ.get("FERMI_LDAP_URI", "").split())
    if not uri:
        return None
    if find_spec("django_auth_ldap") is None or find_spec("ldap") is None:
        raise InvalidSettingError(
            f"FERMI_LDAP_URI takes: {PIP_INSTALL} {PACKAGES}, with the headers of OpenLDAP and SASL"
            " (Debian: build-essential libldap-dev libsasl2-dev)."
        )
    schemes = {_read_scheme(one) for one in uri.split()}
    tls = os.environ.get("FERMI_LDAP_TLS") or "require"
    if tls not in ("require", "off"):
        raise InvalidSettingError(f"FERMI_LDAP_TLS must be require or off, not {tls!r}.")
    search = os.environ.get("FERMI_LDAP_USER_SEARCH", "")
    if "=" not in search:
        raise InvalidSettingError(
            f"FERMI_LDAP_USER_SEARCH must be where people are, such as ou=people,dc=example,dc=org, not {search!r}."
        )
    found = LdapSettings(
        uri=uri,
        user_search=search,
        user_filter=_read_filter(),
        bind_dn=os.environ.get("FERMI_LDAP_BIND_DN", ""),
        bind_password=_read_password(),
        group_search=os.environ.get("FERMI_LDAP_GROUP_SEARCH", ""),
        group_type=os.environ.get("FERMI_LDAP_GROUP_TYPE") or GROUP_TYPES[0],
        start_tls=tls == "require" and "ldap" in schemes,
        ca_file=os.environ.get("FERMI_LDAP_CA_FILE", ""),
        name=(os.environ.get("FERMI_LDAP_NAME") or "LDAP")[:40],
        create_users=read_flag("FERMI_LDAP_CREATE_USERS", default=True),
    )
    if found.start_tls and len(schemes) > 1:
        raise InvalidSettingError("FERMI_LDAP_URI must name either ldaps:// or ldap:// addresses, not both.")
    if found.group_type not in GROUP_TYPES:
        raise InvalidSettingError(
            f"FERMI_LDAP_GROUP_TYPE must be one of {', '.join(GROUP_TYPES)}, not {found.group_type!r}."
        )
    if found.bind_dn and not found.bind_password:
        raise InvalidSettingError("FERMI_LDAP_BIND_DN needs FERMI_LDAP_BIND_PASSWORD or FERMI_LDAP_BIND_PASSWORD_FILE.")
    if found.ca_file and not Path(found.ca_file).is_file():
        raise InvalidSettingError(f"FERMI_LDAP_CA_FILE must be a file, not {found.ca_file!r}.")
    return found


def _read_scheme(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("ldaps", "ldap") or not parts.hostname or parts.username or parts.path.strip("/"):
        raise InvalidSettingError(
            f"FERMI_LDAP_URI must be an address such as ldaps://ldap.example.org, not {address!r}."
        )
    return parts.scheme


def _read_filter() -> str:
    text = os.environ.get("FERMI_LDAP_USER_FILTER") or "(uid=%(user)s)"
    try:
        usable = text.startswith("(") and "%(user)s" in text and bool(text % {"user": "ada"})
    except (KeyError, TypeError, ValueError):
        usable = False
    if not usable:
        raise InvalidSettingError(f"FERMI_LDAP_USER_FILTER must be a filter such as (uid=%(user)s), not {text!r}.")
    return text


def _read_password() -> str:
    if text := os.environ.get("FERMI_LDAP_BIND_PASSWORD", ""):
        return text
    path = os.environ.get("FERMI_LDAP_BIND_PASSWORD_FILE", "")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n") if path else ""
    except (OSError, ValueError) as error:
        raise InvalidSettingError(f"FERMI_LDAP_BIND_PASSWORD_FILE cannot be read: {error}") from None
