"""Sends due messages; each one by the process that claims it first.

    waiting, due ──claim (compare-and-set on due_at), the try is recorded──▶ sent | waiting again, later | failed

If a process dies while it sends, a try without an end remains; after CLAIM_SPAN the message is sent again with the same
id, by which receivers can recognise it. Sending delays nothing else: few threads do it, in a process of its own, which
is killed when a try takes longer than SEND_SECONDS, and a channel that fails pauses.
"""

import logging
import random
import time
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from apps.common.clock import now
from apps.common.retention import delete_old
from apps.common.row_bounds import MAX_ROWS
from apps.common.texts import render_text
from apps.notices.models import Channel, Delivery, Outcome
from apps.notices.readers import may_read
from apps.notices.sender.errors import DeliveryError
from apps.notices.sender.process import SenderProcess, SendersBusyError
from apps.notices.sender.request import send_message

log = logging.getLogger(__name__)

CLAIM_SPAN = timedelta(seconds=90)
"""Longer than any try takes."""
MAX_PER_PASS, MAX_SCANNED = 20, 1000
RETRY_DELAYS = [timedelta(seconds=seconds) for seconds in (10, 60, 300, 1200, 3600, 3 * 3600, 6 * 3600, 12 * 3600)]
"""Pauses between tries; after the last one, about a day, a message is given up."""
MAX_CHANNEL_REST = timedelta(minutes=10)
"""Longest pause of a channel after failures of its messages."""


def deliver_due() -> int:
    """Send some of the due messages, of each channel the oldest, so that a slow one delays the others by no more.
    Returns how many were tried; 0 if enough threads of this process are sending."""
    moment = now()
    rested = Q(channel__rests_until=None) | Q(channel__rests_until__lte=moment)
    waiting = Delivery.objects.filter(rested, outcome=Outcome.WAITING, due_at__lte=moment)
    oldest: dict[str, str] = {}
    for key, channel in waiting.order_by("due_at").values_list("pk", "channel")[:MAX_SCANNED]:
        oldest.setdefault(channel, key)
    try:
        with SenderProcess() as sender:
            return sum(deliver_one(key, sender) for key in [*oldest.values()][:MAX_PER_PASS])
    except SendersBusyError:
        return 0


def deliver_one(key: str, sender: SenderProcess, *, is_test: bool = False) -> bool:
    """Send one message. Returns False if another process has it, it is not due, or its channel pauses. `is_test`: it is
    not tried again."""
    delivery = (
        Delivery.objects.select_related("channel__user", "incident").filter(pk=key, outcome=Outcome.WAITING).first()
    )
    if delivery is None or delivery.due_at is None or delivery.due_at > now():
        return False
    if not is_test and (rests := delivery.channel.rests_until) and rests > now():
        return False  # another of its messages has just failed
    if not _claim_delivery(delivery):
        return False
    if not delivery.channel.enabled or not _may_tell(delivery):
        _end_delivery(delivery, Outcome.DROPPED)
        return False
    began = time.monotonic()
    try:
        answer = send_message(delivery, delivery.channel, sender)
    except DeliveryError as error:
        _record_failure(delivery, error, began, is_test=is_test)
    except Exception as error:
        log.exception("message %s could not be sent", key)
        _record_failure(
            delivery, DeliveryError("CHANNEL_AWAY", why=f"{type(error).__name__}: {error}"), began, is_test=is_test
        )
    else:
        _record_try(delivery, began, answer=answer)
        with transaction.atomic():
            _end_delivery(delivery, Outcome.SENT)
            Channel.objects.filter(pk=delivery.channel_id).exclude(failures=0).update(failures=0, rests_until=None)
    return True


def _may_tell(delivery: Delivery) -> bool:
    """Return False for the channel of a person who may no longer know of the incident: rights count as they are now,
    not as they were when the message was made."""
    user = delivery.channel.user
    return user is None or (user.is_active if delivery.incident is None else may_read(user, delivery.incident))


def _claim_delivery(delivery: Delivery) -> bool:
    """Claim the message and record the try before anything is sent. Returns False if another process was faster."""
    moment = now()
    until = moment + CLAIM_SPAN + timedelta(microseconds=random.randrange(1_000_000))
    delivery.tries = [*delivery.tries, {"at": moment.isoformat()}]
    mine = Delivery.objects.filter(pk=delivery.pk, outcome=Outcome.WAITING, due_at=delivery.due_at)
    if not mine.update(due_at=until, tries=delivery.tries):
        return False
    delivery.due_at = until
    return True


def _record_try(delivery: Delivery, began: float, **told: Any) -> None:
    delivery.tries[-1] |= {"seconds": round(time.monotonic() - began, 3), **told}


def _record_failure(delivery: Delivery, error: DeliveryError, began: float, *, is_test: bool) -> None:
    _record_try(delivery, began, error={"code": error.code, "params": error.params}, answer=error.answer)
    tried = len(delivery.tries)
    log.warning(
        "message %s by %s: %s", delivery.pk, delivery.channel_id, render_text(error.code, error.params, "en")[0]
    )
    if is_test or error.lasting or tried > len(RETRY_DELAYS):
        _end_delivery(delivery, Outcome.FAILED)
    else:
        pause = RETRY_DELAYS[tried - 1] * random.uniform(0.8, 1.2)
        _write_delivery(delivery, due_at=now() + pause)
    if not is_test:
        rest = min(MAX_CHANNEL_REST, RETRY_DELAYS[min(tried, len(RETRY_DELAYS)) - 1])
        Channel.objects.filter(pk=delivery.channel_id).update(failures=F("failures") + 1, rests_until=now() + rest)


def _end_delivery(delivery: Delivery, outcome: Outcome) -> None:
    _write_delivery(delivery, outcome=outcome, due_at=None, ended_at=now())


def _write_delivery(delivery: Delivery, **values: Any) -> None:
    """Update the message, if the claim is still this process's."""
    Delivery.objects.filter(pk=delivery.pk, due_at=delivery.due_at).update(tries=delivery.tries, **values)


def send_test(channel: Channel) -> Delivery:
    """Send a test message now and once, and return it. Raises SendersBusyError."""
    with SenderProcess() as sender:
        moment = now()
        tests = Delivery.objects.filter(channel=channel, incident=None).order_by("-created_at")
        Delivery.objects.filter(pk__in=[*tests.values_list("pk", flat=True)[MAX_ROWS["notice-tests"] - 1 :]]).delete()
        delivery = Delivery.objects.create(channel=channel, what="test", created_at=moment, due_at=moment)
        deliver_one(delivery.pk, sender, is_test=True)
    delivery.refresh_from_db()
    return delivery


def delete_old_tests(before: datetime) -> int:
    """Delete old test messages, which no incident deletes. Returns their number."""
    return delete_old(Delivery.objects.filter(incident=None, created_at__lt=before))
