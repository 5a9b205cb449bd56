"""Changes of channels."""

import secrets
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts import audit, encryption
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.common.texts import get_request_language
from apps.notices import delivery
from apps.notices.models import Channel, ChannelKind, Delivery
from apps.notices.sender import request
from apps.notices.sender.errors import DeliveryError
from apps.notices.sender.process import SEND_SECONDS, SendersBusyError
from apps.notices.services import ownership
from fermi.jobs.spec import Problem


def create_channel(
    user: User,
    *,
    scope: str,
    name: str,
    kind: str,
    address: str,
    project_id: str | None = None,
    lang: str = "",
    enabled: bool = True,
) -> tuple[Channel, str]:
    """Create a channel. Returns it, and the secret that its webhooks are signed with, which is not shown again; empty
    for other kinds. Raises ApiError."""
    owner = ownership.build_owner_columns(user, scope, project_id)
    shown = _check_address(kind, address)  # before the transaction: it may take seconds
    secret = f"fermi_whsec_{secrets.token_hex(32)}" if kind == ChannelKind.WEBHOOK else ""
    with transaction.atomic():
        check_row_limit("notice-channels", Channel.objects.filter(**owner))
        row = Channel.objects.create(
            **owner, name=name, kind=kind, address=encryption.encrypt_value(address), shown=shown,
            secret=encryption.encrypt_value(secret) if secret else "", language=lang or get_request_language(),
            enabled=enabled, created_at=now(), created_by=user,
        )  # fmt: skip
        audit.record_event(user, "channel.create", row.pk, project=row.project_id, kind=kind)
    return row, secret


def change_channel(user: User, key: str, changes: Mapping[str, Any]) -> Channel:
    """Change a channel, and end its pause after failures. Raises ApiError."""
    row = ownership.get_owned(Channel.objects.all(), user, key, change=True)
    shown = _check_address(row.kind, changes["address"]) if "address" in changes else ""
    with transaction.atomic():
        row = ownership.get_owned(Channel.objects.all(), user, key, change=True)
        if "address" in changes:
            row.address, row.shown = encryption.encrypt_value(changes["address"]), shown
        row.name = changes.get("name", row.name)
        row.language = changes.get("lang", row.language)
        row.enabled = changes.get("enabled", row.enabled)
        row.failures, row.rests_until = 0, None  # a user has changed it
        row.save()
        audit.record_event(user, "channel.change", row.pk, project=row.project_id, fields=sorted(changes))
    return row


@transaction.atomic
def delete_channel(user: User, key: str) -> None:
    row = ownership.get_owned(Channel.objects.all(), user, key, change=True)
    audit.record_event(user, "channel.delete", row.pk, project=row.project_id)
    row.delete()


def test_channel(user: User, key: str) -> Delivery:
    """Send a test message now. Raises ApiError 429 if enough messages are being sent."""
    row = ownership.get_owned(Channel.objects.all(), user, key, change=True)
    try:
        return delivery.send_test(row)
    except SendersBusyError:
        raise _make_busy_error() from None


def _check_address(kind: str, address: str) -> str:
    """Return what may be shown of the address. Raises ApiError."""
    try:
        return request.check_address(kind, address)
    except DeliveryError as error:
        raise ProblemsError([Problem("address", error.code, error.params)]) from None
    except SendersBusyError:
        raise _make_busy_error() from None


def _make_busy_error() -> ApiError:
    return ApiError(429, "CHANNEL_SENDERS_BUSY", seconds=int(SEND_SECONDS))
