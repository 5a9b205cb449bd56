"""The Celery app; `celery -A server.celery worker` starts from here."""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # they import all views; `make check` runs them

# Celery warns root of pickled messages; only JSON is accepted here.
warnings.simplefilter("ignore", SecurityWarning)

app = Celery("fermi")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
