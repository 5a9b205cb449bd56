"""Asks providers again and again whether they still vouch for the people who signed in by them.

Each provider has a row with a claim, so that one process at a time asks it, and one that does not answer makes no other
wait. Each grant has its own due time. Nothing is in a transaction while a provider is asked; what it answered is
written only if the grant is still the one that it was asked with: a sign-in meanwhile replaces it.
"""

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts.encryption import DecryptionError, decrypt_value, encrypt_value
from apps.accounts.models import User
from apps.accounts.revocation import ALL_TOKENS, end_access
from apps.common.claims import RowClaim, claim_row
from apps.common.clock import now
from apps.identity.claims import are_storable, store_claims
from apps.identity.configuration import ProviderConfiguration
from apps.identity.grants import is_usable
from apps.identity.issuers import accept_issuer
from apps.identity.models import ProviderGrant, ProviderRecheck
from apps.identity.provider_settings import OPENID_KINDS
from apps.identity.selectors import find_configuration

log = logging.getLogger(__name__)

CLAIM_SPAN = timedelta(seconds=60)
PASS_SECONDS = 30.0
"""How long a pass works on one provider; the next one goes on."""
BATCH = 50
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(minutes=30)
"""How long a provider that does not answer is left alone: twice as long each time."""
VOLATILE = frozenset(("iat", "exp", "nbf", "auth_time", "jti", "nonce", "at_hash", "c_hash", "sid", "uti", "rh", "aio"))
REASON = "the provider no longer vouches"
OTHER_ISSUER = "another issuer than the one that its people signed in by"


def list_due_providers() -> list[str]:
    """Return the providers that have due grants and are not paused."""
    if not settings.IDENTITY_RECHECK_SECONDS:
        return []
    moment = now()
    due = ProviderGrant.objects.filter(due_at__lte=moment)
    found = set(due.order_by().values_list("account__provider", flat=True).distinct())
    paused = ProviderRecheck.objects.filter(provider__in=found, due_at__gt=moment)
    return sorted(found - set(paused.values_list("provider", flat=True)))


def recheck_provider(provider_id: str) -> None:
    """Renew a provider's due grants, unless another process does, or the provider is paused."""
    configuration = find_configuration(provider_id, enabled=None)
    if configuration is None or configuration.kind not in OPENID_KINDS or not settings.IDENTITY_RECHECK_SECONDS:
        return
    try:
        with transaction.atomic():
            row, _ = ProviderRecheck.objects.get_or_create(provider=provider_id, defaults={"due_at": now()})
    except IntegrityError:
        return  # another process has just made it
    claim = claim_row(row, CLAIM_SPAN) if row.due_at <= now() else None
    if claim is None:
        return
    with claim.kept():
        if not configuration.enabled:
            error = _postpone_all(provider_id)
        elif not accept_issuer(configuration):  # its people are others: it must not get tokens of the former issuer
            error = OTHER_ISSUER
        else:
            error = _renew_due(configuration)
    _release(claim, row, error)


def _release(claim: RowClaim, row: ProviderRecheck, error: str) -> None:
    """Write when the provider is asked next. `error`: what was wrong with it; "" if nothing was."""
    if not error:
        if row.failures:
            log.warning("the identity provider %s answers again", row.provider)
        claim.write(due_at=now(), failures=0, silent_since=None, error="")
        return
    pause = min(FIRST_PAUSE * 2 ** min(row.failures, 10), LONGEST_PAUSE)
    log.warning(
        "the identity provider %s cannot be asked who may stay, so all stay; next time in %d s: %s",
        row.provider,
        pause.total_seconds(),
        error,
    )
    claim.write(
        due_at=now() + pause,
        failures=row.failures + 1,
        silent_since=row.silent_since or now(),
        error=error[:500],
    )


def _renew_due(configuration: ProviderConfiguration) -> str:
    """Renew the due grants, at most for PASS_SECONDS. Return what was wrong with the provider, or ""."""
    import requests  # not in processes that ask no provider

    from apps.identity.errors import SignInError
    from apps.identity.oidc.description import read_description

    end = time.monotonic() + PASS_SECONDS
    try:
        description = read_description(configuration.settings["server_url"])
        while time.monotonic() < end:
            grants = ProviderGrant.objects.filter(account__provider=configuration.id, due_at__lte=now())
            batch = list(grants.select_related("account__user").order_by("due_at", "pk")[:BATCH])
            for grant in batch:
                if time.monotonic() >= end:
                    break
                _renew(grant, configuration, description)
            if len(batch) < BATCH:
                break
    except (requests.RequestException, SignInError) as error:
        return str(error) or type(error).__name__
    return ""


def _postpone_all(provider_id: str) -> str:
    """Let all grants of a provider wait: a disabled one is not asked, and takes nothing from anybody."""
    ProviderGrant.objects.filter(account__provider=provider_id, due_at__lte=now()).update(due_at=_next_time())
    return ""


def _renew(grant: ProviderGrant, configuration: ProviderConfiguration, description: Mapping[str, Any]) -> None:
    """Renew one grant, and apply what the provider says. Raises requests.RequestException and SignInError where it says
    nothing."""
    import requests

    from apps.identity.errors import SignInError
    from apps.identity.oidc.renewal import GrantRefusedError, may_have_renewed, read_claims, renew_grant

    account, was_pending = grant.account, grant.is_pending
    known = account.extra_data if isinstance(account.extra_data, dict) else {}
    try:
        token = decrypt_value(grant.refresh_token)
    except DecryptionError:
        token = ""
    if not token or not isinstance(known.get("id_token"), dict) or not account.user.is_active:
        log.warning("the grant of %s at %s is of no use any more", account.user.username, configuration.id)
        _filter_same(grant).delete()
        return
    if not _filter_same(grant).filter(due_at=grant.due_at).update(is_pending=True, due_at=_next_time()):
        return  # the person has just signed in, or another process was faster
    try:
        answer = renew_grant(configuration, description, token)
    except GrantRefusedError as error:
        _end(grant, configuration, str(error), is_certain=not was_pending)
        return
    except requests.RequestException as error:
        if not was_pending and not may_have_renewed(error):
            _filter_same(grant).update(is_pending=False)
        raise
    if not _store_answer(grant, answer):
        return
    try:
        claims = read_claims(configuration, description, answer, known)
    except SignInError as error:  # about this person alone
        log.warning("what %s says of %s does not count: %s", configuration.id, account.user.username, error)
        return
    if not are_storable(claims):
        log.warning("what %s says of %s cannot be stored", configuration.id, account.user.username)
        return
    if _drop_volatile(claims) != _drop_volatile(known):
        _apply(grant, account, claims)


def _drop_volatile(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims without those that tell one token from the next."""
    token = claims.get("id_token")
    return {**claims, "id_token": {key: value for key, value in (token or {}).items() if key not in VOLATILE}}


def _store_answer(grant: ProviderGrant, answer: Mapping[str, Any]) -> bool:
    """Store the refresh token that the provider replaced the former one with. Return False if the person has signed in
    meanwhile."""
    replaced = answer.get("refresh_token")
    sealed = encrypt_value(replaced) if is_usable(replaced) else grant.refresh_token
    stored = _filter_same(grant).update(refresh_token=sealed, is_pending=False)
    grant.refresh_token = sealed
    return bool(stored)


@transaction.atomic
def _apply(grant: ProviderGrant, account: SocialAccount, claims: dict[str, Any]) -> None:
    """Store the claims, and tell the apps above. A sign-in meanwhile knows better."""
    if not _filter_same(grant).select_for_update(of=("self",)).exists():
        return
    store_claims(account, claims)


@transaction.atomic
def _end(grant: ProviderGrant, configuration: ProviderConfiguration, error: str, *, is_certain: bool) -> None:
    """End the person's sessions, and tokens too unless the provider's settings keep them. `is_certain` False: an answer
    that replaced the refresh token may have been lost, and then the provider refuses the former one of anybody; the
    person signs in again, and the tokens stay."""
    if not _filter_same(grant).delete()[0]:
        return
    user: User = grant.account.user
    ends_tokens = is_certain and configuration.settings.get("end_tokens", True)
    ended = end_access(user, REASON, tokens=ALL_TOKENS if ends_tokens else None)
    log.warning(
        "the provider %s no longer vouches for %s: %d sessions and %d tokens have ended (%s)",
        configuration.id,
        user.username,
        ended.sessions,
        ended.tokens,
        error if is_certain else f"{error}; an earlier answer was lost",
    )


def _filter_same(grant: ProviderGrant) -> Any:
    """Return the row, if its token is still the one that was read: each encryption is another text."""
    return ProviderGrant.objects.filter(pk=grant.pk, refresh_token=grant.refresh_token)


def _next_time() -> datetime:
    return now() + timedelta(seconds=settings.IDENTITY_RECHECK_SECONDS)
