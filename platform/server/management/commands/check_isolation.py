"""`manage.py check_isolation`: what keeps training on this machine from the platform's own, tried from inside. What
`fermi doctor isolation` runs; prints one JSON line."""

import json
from typing import Any

from django.core.management.base import BaseCommand

from apps.clusters.models import Cluster
from apps.clusters.selectors import build_connection
from fermi.engines.local import check


class Command(BaseCommand):
    help = "Tries from inside whether a task could reach the platform's own files and processes."
    requires_system_checks = ()  # they import all views

    def handle(self, *args: Any, **options: Any) -> None:
        known = Cluster.objects.filter(backend="local").order_by("pk").first() or Cluster(backend="local")
        found = [*check.notices(build_connection(known)), *check.check_isolation(build_connection(known))]
        shown = [{"level": one.level.value, "code": one.code, "params": dict(one.params)} for one in found]
        self.stdout.write(json.dumps({"findings": shown}))
