"""Settings of the database, cache and files."""

import os

from server.env import parse_postgres_url, read_setting
from server.paths import get_data_dir, get_redis_url, list_private_paths

__all__ = [
    "CACHES",
    "CACHE_MAX_GB",
    "CARRIED_DATA_GB",
    "CARRIED_FOLDER_GB",
    "CARRIED_TASK_GB",
    "DATABASES",
    "DATA_DIR",
    "DATA_ROOTS",
    "FILES",
    "FILES_ENDPOINT",
    "FILES_KEY",
    "FILES_MAX_FILE_GB",
    "FILES_PIECE_BYTES",
    "FILES_SECRET",
    "ISOLATION",
    "PRIVATE_PATHS",
    "REDIS_URL",
    "TASK_READS",
    "TASK_WRITES",
]

DATA_DIR = get_data_dir()
# Folders that a dataset may be made from, beside datasets/ and workspace/ of the data directory.
DATA_ROOTS = [root for root in os.environ.get("FERMI_DATA_ROOTS", "").split(os.pathsep) if root]
# Files of projects: a folder (files/ of the data directory), or s3://bucket/prefix with where it is and who may.
FILES: str = read_setting("FERMI_FILES")
FILES_ENDPOINT = os.environ.get("FERMI_FILES_ENDPOINT", "")
FILES_KEY = os.environ.get("FERMI_FILES_KEY", "")
FILES_SECRET = os.environ.get("FERMI_FILES_SECRET", "")
FILES_MAX_FILE_GB: int = read_setting("FERMI_FILES_MAX_FILE_GB")
FILES_PIECE_BYTES = 16 << 20  # of a file that is being uploaded, in one request
# Between the platform and environments that do not see its data directory: a checkpoint, all that a task writes, and
# what it reads.
CARRIED_FOLDER_GB: int = read_setting("FERMI_CARRIED_FOLDER_GB")
CARRIED_TASK_GB: int = read_setting("FERMI_CARRIED_TASK_GB")
CARRIED_DATA_GB: int = read_setting("FERMI_CARRIED_DATA_GB")
# Of each project's cache of libraries (HF_HOME, TORCH_HOME, …), unless its limits say otherwise; 0: no limit.
CACHE_MAX_GB: int = read_setting("FERMI_CACHE_MAX_GB")
# What keeps ranks on this machine from the platform's own, and what of it lies outside of the data directory.
ISOLATION: str = read_setting("FERMI_ISOLATION")
PRIVATE_PATHS = list_private_paths(DATA_DIR) + ([FILES] if FILES.startswith("/") else [])
# What every task may read, and write, beside what it is given: data, shared caches, scripts.
TASK_READS: list[str] = read_setting("FERMI_TASK_READS")
TASK_WRITES: list[str] = read_setting("FERMI_TASK_WRITES")
REDIS_URL = get_redis_url(DATA_DIR)

DATABASES = {
    "default": parse_postgres_url(os.environ["DATABASE_URL"])
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
