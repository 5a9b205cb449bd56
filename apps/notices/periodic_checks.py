"""Notifications of what time alone brings about: tokens that expire, disks that fill up."""

from datetime import timedelta

from django.conf import settings

from apps.accounts.models import ApiToken
from apps.common import disks
from apps.common.clock import now
from apps.notices.services.incidents import open_keys, over, tell

AHEAD = timedelta(days=7)
LONG = timedelta(days=14)
"""A token with a shorter validity is not notified: its user knows that it expires."""
MOST = 500


def look() -> None:
    """Check tokens and the disk of the data directory."""
    _tokens()
    _disk()


def _tokens() -> None:
    moment, told = now(), open_keys("token_ends")
    ending = ApiToken.objects.filter(expiry__gt=moment, expiry__lt=moment + AHEAD).order_by("expiry")
    for token in ending[:MOST]:
        if token.digest not in told and token.expiry - token.created >= LONG:
            params = {"token": token.name or "–", "ends": token.expiry.timestamp()}
            tell("token_ends", token.digest, "NOTICE_TOKEN_ENDS", params, owner=token.user_id, link="/settings")


def _disk() -> None:
    if full := disks.nearly_full(settings.DATA_DIR):
        params = {"path": full["path"], "percent": full["percent"], "freeMiB": full["free"] >> 20}
        tell("disk_full", full["path"], "NOTICE_DISK_FULL", params, counts=False)
    else:
        over(str(settings.DATA_DIR), "disk_full")
