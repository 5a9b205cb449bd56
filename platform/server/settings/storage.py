"""Database, cache and files."""

import os

from server.places import broker_url, data_dir
from server.settings.env import postgres

__all__ = ["CACHES", "DATABASES", "DATA_DIR", "DATA_ROOTS", "REDIS_URL"]

DATA_DIR = data_dir()
# Folders that a dataset may be made from: any on one's own machine; a shared platform names them.
_ROOTS = os.environ.get("FERMI_DATA_ROOTS") or (str(DATA_DIR) if os.environ.get("DATABASE_URL") else "/")
DATA_ROOTS = _ROOTS.split(os.pathsep)
REDIS_URL = os.environ.get("REDIS_URL") or broker_url(DATA_DIR)

DATABASES = {
    "default": postgres(os.environ["DATABASE_URL"])
    if os.environ.get("DATABASE_URL")
    else {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA_DIR / "fermi.sqlite3",
        "CONN_MAX_AGE": None,  # opening one costs more than most queries
        "OPTIONS": {
            # A deferred transaction that turns into a writer cannot wait for the lock; an immediate one can.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,  # seconds
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}

CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
