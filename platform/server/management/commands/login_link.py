"""`manage.py login_link`: a fresh one-time sign-in link, for whoever may read the platform's database. What `fermi
login-link` runs; prints one JSON line."""

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand

from apps.accounts import audit, services
from apps.accounts.models import User


class Command(BaseCommand):
    help = "Prints a one-time sign-in link, by default of the platform's first administrator."
    requires_system_checks = ()  # they import all views

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", help="by default the first administrator's")

    def handle(self, *args: Any, username: str | None, **options: Any) -> None:
        people = User.objects.filter(is_active=True)
        wanted = people.filter(username=username) if username else people.filter(is_superuser=True)
        user = wanted.order_by("pk").first()
        link = None
        if user:
            link = services.create_sign_in_link(user)
            audit.record_event(None, "user.sign-in-link.make", user.username)
        self.stdout.write(json.dumps({"signInLink": link, "username": user.username if user else username}))
