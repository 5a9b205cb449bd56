"""A migration gives way to the requests of the release that still runs."""

from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from apps.tensorboard.models import TensorBoard
from server.management.commands import migrate

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer"),
]

PARENT = "clusters_devenvironment"
"""A table that the new one refers to."""


@pytest.fixture
def request_under_way() -> Any:
    """A transaction of another process that has changed the table."""
    call_command("migrate", "tensorboard", "zero", verbosity=0)
    with psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": None}) as other:
        other.execute(f"UPDATE {PARENT} SET name = name WHERE false")
        yield other
        other.rollback()
    call_command("migrate", "tensorboard", verbosity=0)


def test_a_migration_waits_until_a_request_has_ended(request_under_way: Any, monkeypatch: Any) -> None:
    waited: list[str] = []

    def end_request() -> None:
        waited.append(request_under_way.info.transaction_status.name)
        request_under_way.commit()

    monkeypatch.setattr(migrate, "wait_for_others", end_request)
    said = StringIO()
    call_command("migrate", "tensorboard", verbosity=0, stderr=said)
    assert waited == ["INTRANS"]
    assert "is tried again" in said.getvalue()
    assert not TensorBoard.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_lock_that_is_never_free_is_reported(request_under_way: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(migrate, "wait_for_others", lambda: None)
    monkeypatch.setattr(migrate, "MAX_TRIES", 2)
    with pytest.raises(OperationalError, match="lock timeout"):
        call_command("migrate", "tensorboard", verbosity=0, stderr=StringIO())
