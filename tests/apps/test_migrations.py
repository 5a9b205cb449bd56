"""Processes of the last release go on while the database is upgraded, and until each of them is replaced: a migration
adds what they need not know, and takes away only what they no longer use."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection

from tests import previous_release, services
from tests.platform_process import ROOT

pytestmark = [
    pytest.mark.database,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="one supervisor replaces all processes on SQLite"),
]

MIGRATED = """
import json, sys
import django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

def columns():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable = 'YES', "
            "column_default IS NOT NULL OR is_identity = 'YES' FROM information_schema.columns "
            "WHERE table_schema = 'public'"
        )
        return cursor.fetchall()

executor = MigrationExecutor(connection)
former = [tuple(pair) for pair in json.load(sys.stdin)]
others = [node for node in executor.loader.graph.leaf_nodes() if node[0] not in dict(former) | {new: 0 for new in NEW}]
executor.migrate(former + others)
before = columns()
executor = MigrationExecutor(connection)
executor.migrate(executor.loader.graph.leaf_nodes())
print(json.dumps([before, columns()]))
"""


@pytest.fixture(scope="module")
def columns() -> list[dict[tuple[str, str], list[Any]]]:
    """Of every table, by its name and the column's, before and after the upgrade: type, length, whether it may be null,
    whether it fills itself."""
    former = previous_release.migrations()
    ours = {folder.parent.name for folder in (ROOT / "apps").glob("*/migrations") if any(folder.glob("0*.py"))}
    program = f"NEW = {sorted(ours - dict(former).keys())!r}\n{MIGRATED}"
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    env = {**os.environ, **services.separate(), "DJANGO_SETTINGS_MODULE": "server.settings", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(former), env=env, cwd=ROOT, check=True, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return [{(table, name): rest for table, name, *rest in rows} for rows in json.loads(done.stdout)]


def test_no_column_that_the_last_release_reads_was_removed_or_changed(columns: Any) -> None:
    before, after = columns
    assert before
    assert {key: kind[:2] for key, kind in before.items()} == {key: after.get(key, [])[:2] for key in before}


def test_rows_written_by_the_last_release_are_accepted(columns: Any) -> None:
    before, after = columns
    tables = {table for table, _ in before}
    new = {key: kind for key, kind in after.items() if key not in before and key[0] in tables}
    assert not [key for key, (_, _, nullable, filled) in new.items() if not (nullable or filled)]
    stricter = [key for key in before if before[key][2] and not after[key][2]]
    assert not stricter
