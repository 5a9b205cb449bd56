"""How the GPU time of the last week was used, from the ledger."""

from datetime import datetime, timedelta
from typing import Any

from apps.overview.scope import Scope
from apps.scheduling.models import Usage
from apps.scheduling.selectors import PART_SUMS, SUM_WAITED, build_parts
from fermi.scheduler import ledger

WEEK = timedelta(days=7)
SECONDS_PER_HOUR = 3600.0


def summarize_goodput(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return GPU-hours of what was released within the week, by use, with goodput and ETTR."""
    rows = scope.filter_projects(Usage.objects.filter(since__gte=moment - 5 * WEEK, until__gte=moment - WEEK))
    rows = rows.filter(zone=scope.zone) if scope.zone else rows
    rows = rows.filter(gpu_type=scope.gpu_type) if scope.gpu_type else rows
    found = rows.order_by().aggregate(all_waited=SUM_WAITED, **PART_SUMS)
    waited, parts = found["all_waited"] or 0.0, build_parts(found)
    return {
        "since": moment - WEEK,
        "gpuHours": parts.total / SECONDS_PER_HOUR,
        **{part: seconds / SECONDS_PER_HOUR for part, seconds in ledger.parts_to_dict(parts).items()},
        "goodput": ledger.compute_goodput(parts),
        "waited": waited / SECONDS_PER_HOUR,
        "ettr": ledger.compute_ettr(parts, waited),
    }
