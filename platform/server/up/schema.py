"""Whether the database needs migrations. Asking Django takes a second of every start; comparing a hash does not."""

import hashlib
import os
import sqlite3
from pathlib import Path

from server import paths

STATE_FILE = "schema"


def needs_migration(data: Path) -> bool:
    """Return False only if this very database was brought to this very code's migrations. An external database is
    always asked."""
    if os.environ.get("DATABASE_URL"):
        return True
    try:
        return (data / STATE_FILE).read_text() != _hash_state(data)
    except FileNotFoundError:
        return True


def record_migrated(data: Path) -> None:
    """Store that all migrations are applied."""
    if not os.environ.get("DATABASE_URL"):
        (data / STATE_FILE).write_text(_hash_state(data))


def _hash_state(data: Path) -> str:
    """Return a hash of the code's migrations (ours by content, the packages' by the pins) and of those that the
    database has applied."""
    digest = hashlib.sha256((paths.ROOT / "requirements.txt").read_bytes())
    for path in sorted((paths.ROOT / "apps").glob("*/migrations/*.py")):
        digest.update(path.relative_to(paths.ROOT).as_posix().encode() + path.read_bytes())
    try:
        with sqlite3.connect(f"file:{data / 'fermi.sqlite3'}?mode=ro", uri=True) as database:
            digest.update(
                repr(database.execute("SELECT app, name FROM django_migrations ORDER BY id").fetchall()).encode()
            )
    except sqlite3.Error:
        digest.update(b"none")
    return digest.hexdigest()
