"""`manage.py stop_all`: asks every task on this machine to stop, as its administrator would. `make down` begins so; the
tasks then end as stopped instead of being taken for failed and started again."""

from typing import Any

from django.core.management.base import BaseCommand

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.training.public import ACTIVE_STATES, Task, get_backend, stop_task
from fermi.planning import plugins


class Command(BaseCommand):
    help = "Requests the stop of every training task that runs, or waits to run, on this machine; prints their ids."
    requires_system_checks = ()  # they import all views

    def handle(self, *args: Any, **options: Any) -> None:
        known = Cluster.objects.filter(backend__in=plugins.BACKENDS)
        here = [cluster for cluster in known if get_backend(cluster).is_local]
        tasks = Task.objects.filter(state__in=ACTIVE_STATES, stop_requested_at=None, cluster__in=here)
        for task_id in list(tasks.values_list("pk", flat=True)):
            stop_task(User.objects.filter(is_superuser=True).earliest("pk"), task_id)
            self.stdout.write(task_id)
