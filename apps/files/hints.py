"""Messages that make things happen sooner. None of them is needed: the sweep finds what is due."""

from django.db import transaction

from apps.common import wakeups


def due() -> None:
    transaction.on_commit(lambda: wakeups.send("files.sweep"))
