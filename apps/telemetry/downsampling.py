"""Makes coarser series from finer ones, and deletes expired blocks. Each step may be interrupted, repeated, or run by
two processes at once: a coarser block takes its values from a finer one, whatever it contained before."""

import logging

import numpy as np
import orjson
from django.db import transaction
from django.db.models import Q

from apps.common.clock import now
from apps.common.retention import delete_old
from apps.telemetry import block_store
from apps.telemetry.block_codec import Values, coarser, counted
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, EARLY, FINE, GRAINS, LATE, Grain

log = logging.getLogger(__name__)

AT_ONCE = 200
"""Blocks that are combined, and rows that are deleted, in one call."""


def fold() -> int:
    """Combine fine blocks that get no more values into coarser ones. Returns their number."""
    over = now().timestamp() - FINE.block - LATE - EARLY
    waiting = Block.objects.filter(grain=FINE.seconds, sealed=False, begins__lte=over).order_by("begins", "subject")
    done = 0
    for subject, begins in list(waiting.values_list("subject", "begins")[:AT_ONCE]):
        try:
            with transaction.atomic():
                done += _fold(subject, begins)
        except block_store.Contended as error:
            log.warning("telemetry is combined by another process, too: %s", error)
    return done


def _fold(subject: str, begins: int) -> int:
    """Combine one block. It is sealed in the version that was read; what was written meanwhile is combined later."""
    block = block_store.one(FINE, subject, begins)
    if block is None:
        return 0
    for grain in COARSE:
        _into(grain, subject, begins, coarser(block.values, grain.seconds // FINE.seconds))
    row = Block.objects.filter(subject=subject, grain=FINE.seconds, begins=begins, version=block.version)
    left = orjson.dumps({"counted": sums}) if (sums := counted(block.values)) else b""
    return row.update(sealed=True, newest=left)


def _into(grain: Grain, subject: str, begins: int, part: Values) -> None:
    begin = grain.begin(begins)
    there = block_store.one(grain, subject, begin)
    values = there.values if there else Values(grain.values)
    at = (begins - begin) // grain.seconds
    for key, column in part.columns.items():
        np.copyto(values.column(key)[at : at + part.count], column)
    values.emulated = values.emulated or part.emulated
    block_store.save(grain, subject, begin, values, there.version if there else 0)


def forget() -> int:
    """Delete expired blocks. Returns their number."""
    moment = now().timestamp()
    old = (Q(grain=grain.seconds, begins__lt=moment - grain.kept - grain.block) for grain in GRAINS)
    return sum(delete_old(Block.objects.filter(each)) for each in old)
