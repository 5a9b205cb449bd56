"""Old rows are deleted in batches, a bounded number of them at a time."""

import pytest

from apps.accounts.models import AuditEvent
from apps.common import retention
from apps.common.retention import delete_old

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_a_call_deletes_a_bounded_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 2)
    AuditEvent.objects.bulk_create(AuditEvent(action="old", target=str(number)) for number in range(7))
    AuditEvent.objects.create(action="new", target="7")
    old = AuditEvent.objects.filter(action="old")
    assert [delete_old(old, max_batches=2), delete_old(old), delete_old(old)] == [4, 3, 0]
    assert AuditEvent.objects.get().action == "new"
