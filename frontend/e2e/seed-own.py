"""`manage.py shell` reads this: FERMI_SEED running and as many waiting tasks of the fleet are the administrator's, whose
project has limits."""

import os

from apps.accounts.models import User
from apps.common.clock import now
from apps.scheduling.models import Limits
from apps.training.models import Task

admin = User.objects.filter(is_superuser=True).earliest("pk")
for state in ("running", "queued"):
    some = Task.objects.filter(state=state).values_list("pk", flat=True)[: int(os.environ["FERMI_SEED"])]
    Task.objects.filter(pk__in=list(some)).update(owner=admin)
project = admin.memberships.earliest("pk").project
limits = {"updated_at": now(), "most_gpus": 640, "user_most_gpus": 64, "user_most_tasks": 8, "budget": 90_000}
Limits.objects.update_or_create(project=project, defaults=limits)
