"""Run with a platform's own settings, beside it: what would happen later.

python -m tests.e2e.clock_script      reads a line each, and answers with one when that is done

MINUTES   a pass over environments as many minutes later
due       what is looked at later (also: what a killed pass had claimed) is due
"""

import os
import sys
import time
from datetime import timedelta

import django
from django.utils import timezone

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
django.setup(set_prefix=False)

from apps.common import clock_jumps  # noqa: E402
from apps.environments import reconcile  # noqa: E402
from apps.environments.models import Hosted  # noqa: E402
from apps.training.models import Task  # noqa: E402

right = timezone.now
shift = [timedelta()]
clock_jumps._watcher = clock_jumps.ClockWatcher(
    steady=lambda: time.monotonic() + shift[0].total_seconds()
)  # time passes: no jump


def main() -> None:
    for line in map(str.strip, sys.stdin):
        due()
        if line != "due":
            by = timedelta(minutes=float(line))
            timezone.now, shift[0] = lambda by=by: right() + by, by  # type: ignore[misc]
            reconcile.reconcile_due()
            timezone.now, shift[0] = right, timedelta()
            due()
        print("done", flush=True)


def due() -> None:
    for kind in (Hosted, Task):
        kind._default_manager.filter(due_at__gt=right()).update(due_at=right(), claimed_at=None)


if __name__ == "__main__":
    main()
