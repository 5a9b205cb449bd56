"""Sends new events to the receivers, in the order of their ids, each at least once.

    events up to `settled` ──batch──▶ receiver confirms ──▶ `position` moves, if the claim still holds

A process that dies in between has sent events whose position is not stored: they are sent again. A receiver that fails
pauses, up to MAX_PAUSE; the other one goes on. No transaction is open while anything is sent.
"""

import logging
import random
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts import trail
from apps.accounts.models import AuditEvent
from apps.audit_stream.completeness import get_newest_id, settle_events
from apps.audit_stream.models import AuditReceiver
from apps.audit_stream.receivers import (
    MAX_PROBLEM_LENGTH,
    ReceiverError,
    encode_event,
    format_address,
    list_addresses,
)
from apps.audit_stream.selectors import count_unsent
from apps.audit_stream.syslog import send_syslog
from apps.common.claims import RowClaim, claim_row
from apps.common.clock import now
from apps.notices.services.incidents import open_incident, resolve_incidents

log = logging.getLogger(__name__)

CLAIM_SPAN = timedelta(seconds=60)
PASS_SECONDS = 20.0
"""After which a pass of a receiver sends nothing more, so that no thread of the worker is its own."""
MAX_BATCH_EVENTS, MAX_BATCH_BYTES = 200, 512 << 10
MIN_PAUSE, MAX_PAUSE = timedelta(seconds=5), timedelta(minutes=10)
NOTIFY_AFTER = timedelta(minutes=5)
INCIDENT_KIND = "audit_stream"


def send_new_events() -> int:
    """Send new events to each receiver that is due. Returns how many events were confirmed."""
    return sum(_serve_receiver(name, address) for name, address in list_addresses().items())


def _serve_receiver(name: str, address: str) -> int:
    row = get_receiver(name)
    if row.due_at > now() or row.position >= get_newest_id():
        return 0
    claim = claim_row(row, CLAIM_SPAN)
    if claim is None:
        return 0
    count = 0
    try:
        with claim.kept():
            for sent in _send_batches(row, claim, address):
                count += sent
    except ReceiverError as error:
        _record_failure(row, claim, address, str(error))
    except Exception as error:
        log.exception("the audit trail cannot be sent to the %s receiver", name)
        _record_failure(row, claim, address, f"{type(error).__name__}: {error}")
    else:
        if not count:  # nothing is settled yet
            claim.write(due_at=now())
        elif claim.write(due_at=now(), failures=0, failing_since=None, problem=""):
            resolve_incidents(name, INCIDENT_KIND)
    return count


def get_receiver(name: str) -> AuditReceiver:
    """Return the receiver's row, which is created when there is none: it begins at FERMI_AUDIT_START, or now."""
    row = AuditReceiver.objects.filter(pk=name).first()
    if row is None:
        moment, position = now(), find_position(settings.AUDIT_START)
        try:
            with transaction.atomic():
                row = AuditReceiver.objects.create(
                    name=name, position=position, settled=position, due_at=moment, created_at=moment
                )
        except IntegrityError:  # another process was faster
            row = AuditReceiver.objects.get(pk=name)
    return row


def find_position(begin: Any) -> int:
    """Return the id after which a receiver begins that wants all events since `begin`; None: those from now on."""
    newest = get_newest_id()
    first = AuditEvent.objects.filter(at__gte=begin).order_by("pk").values_list("pk", flat=True).first() if begin else 0
    return first - 1 if first else newest


def _send(name: str, address: str, events: list[dict[str, Any]]) -> None:
    """Raises ReceiverError unless the receiver has the events."""
    if name == "syslog":
        send_syslog(address, events, ca_file=settings.AUDIT_CA)
    else:
        from apps.audit_stream.webhook import send_webhook  # its HTTP client takes long to import

        send_webhook(address, settings.AUDIT_WEBHOOK_SECRET, events, ca_file=settings.AUDIT_CA)


def _send_batches(row: AuditReceiver, claim: RowClaim, address: str) -> Iterator[int]:
    """Send what is settled, batch after batch, and yield how many events each had. Raises ReceiverError."""
    until = time.monotonic() + PASS_SECONDS
    while time.monotonic() < until and _settle(row, claim) and (batch := _read_batch(row)):
        _send(row.pk, address, batch)
        last = batch[-1]["id"]
        if not claim.write(position=last, sent_at=now()):
            return
        row.position = last
        yield len(batch)


def _settle(row: AuditReceiver, claim: RowClaim) -> bool:
    """Find out what is settled, and store it. Returns False if the claim is lost."""
    before = row.settled, row.mark, row.mark_writers
    settle_events(row)
    after = row.settled, row.mark, row.mark_writers
    return before == after or claim.write(settled=row.settled, mark=row.mark, mark_writers=row.mark_writers)


def _read_batch(row: AuditReceiver) -> list[dict[str, Any]]:
    """Return the next settled events as the export has them, at most MAX_BATCH_EVENTS and about MAX_BATCH_BYTES."""
    rows = AuditEvent.objects.filter(pk__gt=row.position, pk__lte=row.settled).order_by("pk")
    found: list[dict[str, Any]] = []
    size = 0
    for one in trail.select_columns(rows)[:MAX_BATCH_EVENTS]:
        event = trail.serialize_event(one)
        size += len(encode_event(event))
        if found and size > MAX_BATCH_BYTES:
            break
        found.append(event)
    return found


def _record_failure(row: AuditReceiver, claim: RowClaim, address: str, problem: str) -> None:
    """Have the receiver pause, the longer the more often it failed; notify operators once that goes on."""
    moment = now()
    pause = min(MAX_PAUSE, MIN_PAUSE * 2 ** min(row.failures, 20)) * random.uniform(0.8, 1.2)
    values: Mapping[str, Any] = {
        "failures": row.failures + 1,
        "failing_since": row.failing_since or moment,
        "problem": problem.replace("\x00", "")[:MAX_PROBLEM_LENGTH],
    }
    log.warning("the audit trail's %s receiver failed %d times: %s", row.pk, values["failures"], values["problem"])
    if not claim.write(due_at=moment + pause, **values):
        return
    if moment - values["failing_since"] >= NOTIFY_AFTER:
        params = {
            "receiver": row.pk,
            "address": format_address(address),
            "events": count_unsent(row),
            "problem": values["problem"],
        }
        open_incident(INCIDENT_KIND, row.pk, "NOTICE_AUDIT_STREAM", params, counts_again=False)
