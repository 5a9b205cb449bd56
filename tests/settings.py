"""The platform's settings on scratch storage.

SQLite in a file (so that threads and processes meet as they do in production) and no broker; with
FERMI_TEST_DB=postgres a private PostgreSQL and Redis, started on first use and stopped at exit.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from tests import services

if "FERMI_TEST_DATA" not in os.environ:  # pytest-xdist's workers inherit the controller's
    os.environ["FERMI_TEST_DATA"] = tempfile.mkdtemp(prefix="fermi-test-")
    atexit.register(shutil.rmtree, os.environ["FERMI_TEST_DATA"], ignore_errors=True)
os.environ["FERMI_DATA"] = os.environ["FERMI_TEST_DATA"]
os.environ["FERMI_SECRET_KEY"] = "for tests only"

POSTGRES = os.environ.get("FERMI_TEST_DB") == "postgres"
if POSTGRES:
    services.ensure()
else:
    os.environ.pop("DATABASE_URL", None)
    os.environ.pop("REDIS_URL", None)

from server.settings import *  # noqa: E402, F403
from server.settings import CACHES, DATA_DIR, DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

POLICY_MAX_AGE = float("inf")  # else one request of many would have another query; see tests/conftest.py

RATE_LIMIT = RATE_LIMIT_ANONYMOUS = 0  # tests/api/test_rate_limits.py sets them

if POSTGRES:
    DATABASES["default"]["OPTIONS"].pop("pool")  # a pool would keep the test database open when it is dropped
    # Tests empty the cache: each test process has one of its own, apart from those of platforms (`services.separate`).
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 48
    CACHES["default"]["LOCATION"] = f"{os.environ['REDIS_URL'].rsplit('/', 1)[0]}/{16 + worker}"
else:
    DATABASES["default"]["TEST"] = {"NAME": str(Path(DATA_DIR) / "test.sqlite3")}
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    CELERY_BROKER_URL = "memory://"
