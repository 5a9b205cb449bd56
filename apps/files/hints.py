"""Messages that make things happen sooner; none of them is needed: the sweep finds what is due."""

from django.db import transaction

from apps.common import hints


def due() -> None:
    transaction.on_commit(lambda: hints.send("files.sweep"))
