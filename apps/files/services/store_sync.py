"""Carries out the operations on the store that rows ask for. Each operation may be repeated; the row is updated after
it."""

import logging
from contextlib import suppress
from datetime import timedelta

from django.db.models import Q, QuerySet

from apps.accounts.models import Project
from apps.common import claims
from apps.common.clock import now
from apps.files.models import Doing, File
from apps.files.store import Unusable, key, store

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Operations that are carried out within the request; the sweep does the rest."""
IN_A_SWEEP = 2_000
LATER = timedelta(seconds=60)
CLAIM = timedelta(seconds=30)


def sweep() -> None:
    """Carry out the operations that are due, at most MAX_PER_SWEEP."""
    due = File.objects.filter(due_at__lte=now()).exclude(doing__in=[Doing.NOTHING, Doing.PUT])
    for file in due.order_by("due_at", "pk")[:IN_A_SWEEP]:
        act(file)


def now_or_later(project: Project, rows: QuerySet[File]) -> None:
    """Carry out the first MAX_INLINE of the operations of these rows; the sweep does the rest."""
    due = list(rows.filter(Q(doing=Doing.MOVE) | Q(doing=Doing.DELETE), project=project, due_at__lte=now())[:AT_ONCE])
    for file in due:
        act(file)


def act(file: File) -> None:
    """Carry out a row's operation. A failed one is tried again in a minute, and stops no other row."""
    claim = claims.claim_row(file, CLAIM)
    if claim is None:
        return
    with claim.kept(), suppress(claims.LostError):
        try:
            _act(file, claim)
        except (OSError, Unusable) as error:
            log.warning("cannot %s %s of %s: %s", file.doing, file.path, file.project_id, error)
            claim.write(due_at=now() + LATER)


def _act(file: File, claim: claims.Claim) -> None:
    place = key(file.project_id, file.path, file.task)
    if file.doing == Doing.DELETE:
        if file.source:  # it was to be moved
            store().delete(key(file.project_id, file.source, file.task))
        store().delete(place)
        with claim.fenced():
            File.objects.filter(pk=file.pk).delete()
    elif file.doing == Doing.MOVE:
        store().move(key(file.project_id, file.source, file.task), place)
        claim.write(doing=Doing.NOTHING, source="", due_at=None)
