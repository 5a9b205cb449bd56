"""How the directory is asked, and what of its answers counts."""

import logging
from collections.abc import Mapping
from typing import Any

import ldap
from django.conf import settings
from django.dispatch import receiver
from django_auth_ldap.backend import LDAPBackend, _LDAPUser, ldap_error
from django_auth_ldap.config import (
    GroupOfNamesType,
    GroupOfUniqueNamesType,
    LDAPGroupType,
    LDAPSearch,
    LDAPSettings,
    NestedActiveDirectoryGroupType,
    PosixGroupType,
)

from apps.identity.ldap.accounts import MAX_UID_LENGTH, LdapPerson, LdapRefusedError

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5
MAX_GROUPS = 2_000
MAX_TEXT = 200
UID_ATTRIBUTES = ("entryUUID", "objectGUID", "ipaUniqueID", "nsUniqueId")
"""What stays when somebody is renamed, and is never another's: of OpenLDAP (RFC 4530), Active Directory, FreeIPA and
389 Directory Server."""
LOGIN_ATTRIBUTES = ("uid", "sAMAccountName")
ATTRIBUTES = [*UID_ATTRIBUTES, *LOGIN_ATTRIBUTES, "mail", "givenName", "sn", "gidNumber"]
"""Nothing else is read: entries also contain photographs and hashes of passwords."""
GROUP_TYPES: Mapping[str, tuple[type[LDAPGroupType], str]] = {
    "groupOfNames": (GroupOfNamesType, "(objectClass=groupOfNames)"),
    "groupOfUniqueNames": (GroupOfUniqueNamesType, "(objectClass=groupOfUniqueNames)"),
    "posixGroup": (PosixGroupType, "(objectClass=posixGroup)"),
    "activeDirectory": (NestedActiveDirectoryGroupType, "(objectClass=group)"),
}


def make_settings(given: Any) -> LDAPSettings:
    """Return the settings (`server.ldap_settings.LdapSettings`) as django-auth-ldap reads them."""
    options: dict[int, Any] = {
        ldap.OPT_NETWORK_TIMEOUT: TIMEOUT_SECONDS,
        ldap.OPT_TIMEOUT: TIMEOUT_SECONDS,
        ldap.OPT_REFERRALS: 0,
        ldap.OPT_X_TLS_REQUIRE_CERT: ldap.OPT_X_TLS_DEMAND,
    }
    if given.ca_file:
        options[ldap.OPT_X_TLS_CACERTFILE] = given.ca_file
    options[ldap.OPT_X_TLS_NEWCTX] = 0  # the last one: it makes the others count
    values: dict[str, Any] = {
        "SERVER_URI": given.uri,
        "BIND_DN": given.bind_dn,
        "BIND_PASSWORD": given.bind_password,
        "START_TLS": given.start_tls,
        "CONNECTION_OPTIONS": options,
        "USER_SEARCH": LDAPSearch(given.user_search, ldap.SCOPE_SUBTREE, given.user_filter, ATTRIBUTES),
        "USER_ATTRLIST": ATTRIBUTES,
        "ALWAYS_UPDATE_USER": False,
        "AUTHORIZE_ALL_USERS": False,
        "PERMIT_EMPTY_PASSWORD": False,
    }
    if given.group_search:
        kind, only = GROUP_TYPES[given.group_type]
        values["GROUP_TYPE"] = kind(name_attr="cn")
        values["GROUP_SEARCH"] = LDAPSearch(given.group_search, ldap.SCOPE_SUBTREE, only)
    return LDAPSettings("FERMI_NO_SUCH_LDAP_", values)  # all of them are given here


@receiver(ldap_error)
def raise_silence(context: str, exception: Exception, **values: Any) -> None:
    """Raise LdapRefusedError: without it a directory that does not answer looks like a wrong password, or like a person
    who is gone."""
    log.error("the LDAP directory cannot be asked (%s): %s", context, str(exception)[:300])
    raise LdapRefusedError("IDENTITY_LDAP_SILENT", context) from exception


def find_person(login: str) -> LdapPerson | None:
    """Return somebody of the directory by the name that they sign in with; None if there is none, or several. Raises
    LdapRefusedError where the directory does not answer."""
    backend = LDAPBackend()
    backend.settings = make_settings(settings.LDAP)
    user = _LDAPUser(backend, username=login)
    try:
        return None if user.dn is None else read_person(user)
    except ldap.LDAPError as error:
        raise LdapRefusedError("IDENTITY_LDAP_SILENT", str(error)[:300]) from error


def read_person(user: Any) -> LdapPerson:
    """Return what the directory says of somebody whom django-auth-ldap has found. Raises LdapRefusedError and
    LDAPError."""
    attributes = user.attrs or {}
    login = next((value for one in LOGIN_ATTRIBUTES if (value := _read_text(attributes, one))), "")
    uid = next((value for one in UID_ATTRIBUTES if (value := _read_uid(attributes, one))), "")
    if not login or not uid or len(uid) > MAX_UID_LENGTH:
        raise LdapRefusedError("IDENTITY_LDAP_ENTRY", str(user.dn)[:200])
    names: list[str] = []
    entries: list[str] = []
    if user.settings.GROUP_SEARCH is not None:
        names = sorted(one for one in user.group_names if isinstance(one, str) and len(one) <= MAX_TEXT)
        entries = sorted(one for one in user.group_dns if isinstance(one, str) and len(one) <= MAX_TEXT)
    return LdapPerson(
        uid=uid,
        login=login,
        email=_read_text(attributes, "mail")[:254],
        first_name=_read_text(attributes, "givenName")[:150],
        last_name=_read_text(attributes, "sn")[:150],
        claims={
            "login": login,
            "dn": str(user.dn)[:2_000],
            "groups": names[:MAX_GROUPS],
            "group_dns": entries[:MAX_GROUPS],
        },
    )


def _read_text(attributes: Mapping[str, Any], name: str) -> str:
    found = attributes.get(name) or [""]
    return found[0] if isinstance(found[0], str) else ""


def _read_uid(attributes: Mapping[str, Any], name: str) -> str:
    """Return the value; Active Directory's 16 bytes in hexadecimal digits."""
    value = (attributes.get(name) or [""])[0]
    if name == "objectGUID" and value:
        return (value if isinstance(value, bytes) else value.encode()).hex()
    return value if isinstance(value, str) else ""
