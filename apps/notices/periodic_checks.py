"""Notifications of what time alone brings about: tokens that expire, disks that fill up, providers that are silent."""

from datetime import timedelta

from django.conf import settings

from apps.accounts.models import ApiToken
from apps.common import disks
from apps.common.clock import now
from apps.identity import selectors as identity
from apps.notices.services.incidents import list_open_keys, open_incident, resolve_incidents

WARN_BEFORE = timedelta(days=7)
MIN_VALIDITY = timedelta(days=14)
"""A token with a shorter validity is not notified: its user knows that it expires."""
MAX_TOKENS = 500
MIN_SILENCE = timedelta(minutes=10)
"""For a shorter time any provider may be away: nothing ends by it."""


def run_checks() -> None:
    """Check tokens, the disk of the data directory, and identity providers."""
    _check_tokens()
    _check_disk()
    _check_providers()


def _check_tokens() -> None:
    moment, told = now(), list_open_keys("token_ends")
    ending = ApiToken.objects.filter(expiry__gt=moment, expiry__lt=moment + WARN_BEFORE).order_by("expiry")
    for token in ending[:MAX_TOKENS]:
        if token.digest not in told and token.expiry - token.created >= MIN_VALIDITY:
            params = {"token": token.name or "–", "ends": token.expiry.timestamp()}
            open_incident(
                "token_ends", token.digest, "NOTICE_TOKEN_ENDS", params, owner=token.user_id, link="/settings"
            )


def _check_disk() -> None:
    if full := disks.find_nearly_full(settings.DATA_DIR):
        params = {"path": full["path"], "percent": full["percent"], "freeMiB": full["free"] >> 20}
        open_incident("disk_full", full["path"], "NOTICE_DISK_FULL", params, counts_again=False)
    else:
        resolve_incidents(str(settings.DATA_DIR), "disk_full")


def _check_providers() -> None:
    silent = identity.list_silent_providers(MIN_SILENCE)
    for row in silent:
        params = {"provider": row.provider, "error": row.error or "–"}
        link = "/administration/sign-in"
        open_incident("provider_silent", row.provider, "NOTICE_PROVIDER_SILENT", params, link=link, counts_again=False)
    for key in set(list_open_keys("provider_silent")) - {row.provider for row in silent}:
        resolve_incidents(key, "provider_silent")
