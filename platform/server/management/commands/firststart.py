"""`manage.py firststart`: prepares an empty platform and prints one JSON line for whoever started it."""

import argparse
import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.identity.selectors import list_configurations
from fermi import messages
from server import bootstrap


class Command(BaseCommand):
    help = "Makes the administrator, a project, this machine's environment and, with --demo, the demo inventory."
    requires_system_checks = ()  # they import all views

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--demo", action=argparse.BooleanOptionalAction, default=settings.DEMO)

    def handle(self, *args: Any, demo: bool, **options: Any) -> None:
        if not settings.LOCAL_ACCOUNTS and not list_configurations():
            raise CommandError(" ".join(messages.render_text("LOCAL_ACCOUNTS_NO_PROVIDER", "en")))
        settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
        self.stdout.write(json.dumps(bootstrap.bootstrap_platform(settings.DATA_DIR, with_demo=demo)))
