"""A statement gives and refuses what Django's cursor does, whichever way it goes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.db.utils import DatabaseError
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Project
from apps.common.sql import Statement

pytestmark = [pytest.mark.storage, pytest.mark.django_db]


@contextmanager
def watched() -> Iterator[None]:
    with CaptureQueriesContext(connection) as seen:
        yield
    assert seen.captured_queries


@contextmanager
def alone() -> Iterator[None]:
    assert not connection.queries_logged
    yield


Way = Callable[[], AbstractContextManager[None]]
BOTH = pytest.mark.parametrize("way", [watched, alone])


@BOTH
def test_rows_and_what_is_no_parameter(way: Way) -> None:
    with way():
        assert Statement("SELECT %s, '%%s', 'a%%' LIKE 'a%%'").ask(["1%s"]) == [("1%s", "%s", True)]
        assert Statement("SELECT id FROM accounts_project WHERE id = %s").ask(["nobody's"]) == []


@BOTH
def test_a_statement_without_rows_gives_none(way: Way) -> None:
    names = Statement("UPDATE accounts_project SET name = %s WHERE id = %s")
    Project.objects.create(pk="p", name="before")
    with way():
        assert names.ask(["after", "p"]) == []
    assert Project.objects.get(pk="p").name == "after"


@BOTH
def test_what_the_database_refuses_is_django_s_error_and_breaks_the_transaction(way: Way) -> None:
    Project.objects.create(pk="p", name="p")
    again = Statement("INSERT INTO accounts_project SELECT * FROM accounts_project WHERE id = %s")
    with way(), transaction.atomic():
        with pytest.raises(IntegrityError), transaction.atomic():
            again.ask(["p"])
        assert Project.objects.count() == 1
        with pytest.raises(DatabaseError), transaction.atomic(savepoint=False):
            Statement("SELECT nothing FROM nowhere").ask([])
        with pytest.raises(TransactionManagementError):
            Statement("SELECT 1").ask([])
        transaction.set_rollback(True)


def test_a_connection_that_was_closed_is_opened(transactional_db: None) -> None:
    connection.close()
    assert Statement("SELECT 1").ask([]) == [(1,)]
