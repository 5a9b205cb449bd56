"""Asks the directory again and again whether the people who signed in by it are still there, and in which groups."""

import logging
import time

from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.db import transaction

from apps.accounts.revocation import end_access
from apps.identity.claims import store_claims
from apps.identity.environment import LDAP_ID
from apps.identity.ldap.accounts import LdapRefusedError
from apps.identity.ldap.directory import find_person

log = logging.getLogger(__name__)

PASS_SECONDS = 60.0
"""How long a pass works; the next one goes on where it ended."""
REASON = "the directory no longer has the person"
_POSITION = "identity-ldap-recheck"


def recheck_people() -> int:
    """Ask about everybody, at most for PASS_SECONDS, and return how many were asked about. Where the directory does not
    answer, all stay."""
    end = time.monotonic() + PASS_SECONDS
    accounts = SocialAccount.objects.filter(provider=LDAP_ID, user__is_active=True).select_related("user")
    count = 0
    for account in accounts.filter(pk__gt=cache.get(_POSITION, 0)).order_by("pk").iterator(chunk_size=100):
        if time.monotonic() > end:
            break
        try:
            recheck_person(account)
        except LdapRefusedError as error:
            if error.code == "IDENTITY_LDAP_SILENT":
                log.error("the LDAP directory cannot be asked who may stay, so all stay")
                return count
            log.warning("what the directory says of %s cannot be used: %s", account.user.username, error)
        count += 1
        cache.set(_POSITION, account.pk, 3600)
    else:
        cache.delete(_POSITION)
    return count


def recheck_person(account: SocialAccount) -> None:
    """Take over what the directory says of one person now, and end the access of one who is gone. Raises
    LdapRefusedError."""
    known = account.extra_data if isinstance(account.extra_data, dict) else {}
    login = known.get("login")
    if not isinstance(login, str) or not login:
        return  # an administrator has linked the account, and the person has not signed in yet
    found = find_person(login)
    if found is None or found.uid != account.uid:
        if not known.get("gone"):
            _end(account, known)
    elif dict(found.claims) != known:
        store_claims(account, dict(found.claims))


@transaction.atomic
def _end(account: SocialAccount, known: dict[str, object]) -> None:
    """Let the person have no group, and end sessions and tokens."""
    store_claims(account, {**known, "groups": [], "group_dns": [], "gone": True})
    ended = end_access(account.user, REASON)
    log.warning(
        "%s is gone from the LDAP directory: %d sessions and %d tokens have ended",
        account.user.username,
        ended.sessions,
        ended.tokens,
    )
