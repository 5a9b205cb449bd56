"""The worker keeps its connections to the database as Django's settings say."""

import pytest
from django.db import connection

from server.celery import app

pytestmark = pytest.mark.database


@pytest.mark.django_db(transaction=True)
def test_a_connection_is_kept_after_a_message_if_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    (fixup,) = app._fixups
    for age, kept in ((None, True), (0, False)):
        monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
        connection.close()
        connection.ensure_connection()
        before = connection.connection
        fixup.worker_fixup.on_task_prerun(sender=app.tasks["celery.map"])
        fixup.worker_fixup.on_task_postrun(sender=app.tasks["celery.map"])
        assert (connection.connection is before) is kept
