"""Carries out the operations on the store that rows ask for. Each operation may be repeated; the row is updated after
it."""

import logging
from contextlib import suppress
from datetime import timedelta

from django.db.models import Q, QuerySet

from apps.accounts.models import Project
from apps.common import claims
from apps.common.clock import now
from apps.files.models import File, PendingOperation
from apps.files.store import StoreUnusableError, get_store, make_key

log = logging.getLogger(__name__)

MAX_INLINE = 100
"""Operations that are carried out within the request; the sweep does the rest."""
MAX_PER_SWEEP = 2_000
RETRY_DELAY = timedelta(seconds=60)
CLAIM_SPAN = timedelta(seconds=30)


def apply_due() -> None:
    """Carry out the operations that are due, at most MAX_PER_SWEEP."""
    due = File.objects.filter(due_at__lte=now()).exclude(doing__in=[PendingOperation.NOTHING, PendingOperation.PUT])
    for file in due.order_by("due_at", "pk")[:MAX_PER_SWEEP]:
        apply_operation(file)


def apply_pending(project: Project, rows: QuerySet[File]) -> None:
    """Carry out the first MAX_INLINE of the operations of these rows; the sweep does the rest."""
    due = list(
        rows.filter(
            Q(doing=PendingOperation.MOVE) | Q(doing=PendingOperation.DELETE), project=project, due_at__lte=now()
        )[:MAX_INLINE]
    )
    for file in due:
        apply_operation(file)


def apply_operation(file: File) -> None:
    """Carry out a row's operation. A failed one is tried again in a minute, and stops no other row."""
    claim = claims.claim_row(file, CLAIM_SPAN)
    if claim is None:
        return
    with claim.kept(), suppress(claims.ClaimLostError):
        try:
            _apply_to_store(file, claim)
        except (OSError, StoreUnusableError) as error:
            log.warning("cannot %s %s of %s: %s", file.doing, file.path, file.project_id, error)
            claim.write(due_at=now() + RETRY_DELAY)


def _apply_to_store(file: File, claim: claims.RowClaim) -> None:
    place = make_key(file.project_id, file.path, file.task)
    if file.doing == PendingOperation.DELETE:
        if file.source:  # it was to be moved
            get_store().delete(make_key(file.project_id, file.source, file.task))
        get_store().delete(place)
        with claim.fenced():
            File.objects.filter(pk=file.pk).delete()
    elif file.doing == PendingOperation.MOVE:
        get_store().move(make_key(file.project_id, file.source, file.task), place)
        claim.write(doing=PendingOperation.NOTHING, source="", due_at=None)
