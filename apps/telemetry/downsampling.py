"""Makes coarser series from finer ones, and removes what is too old. Everything here may die at any line, be done twice
or by two at once: a coarser block takes its values from a finer one, whatever it had there before.
"""

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
"""Blocks that are folded, and rows that are removed, before somebody else gets a turn."""


def fold() -> int:
    """Folds fine blocks that nothing comes to any more; how many."""
    over = now().timestamp() - FINE.block - LATE - EARLY
    waiting = Block.objects.filter(grain=FINE.seconds, sealed=False, begins__lte=over).order_by("begins", "subject")
    done = 0
    for subject, begins in list(waiting.values_list("subject", "begins")[:AT_ONCE]):
        try:
            with transaction.atomic():
                done += _fold(subject, begins)
        except block_store.Contended as error:
            log.warning("telemetry is folded by somebody else, too: %s", error)
    return done


def _fold(subject: str, begins: int) -> int:
    """What was written meanwhile is folded later: the block is sealed as it was read."""
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
    """Delete what has been kept long enough; return how many rows."""
    moment = now().timestamp()
    old = (Q(grain=grain.seconds, begins__lt=moment - grain.kept - grain.block) for grain in GRAINS)
    return sum(delete_old(Block.objects.filter(each)) for each in old)
