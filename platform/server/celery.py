"""The Celery app; `celery -A server.celery worker` and `… beat` start from here."""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")

# Celery warns root of pickled messages; only JSON is accepted here.
warnings.simplefilter("ignore", SecurityWarning)

app = Celery("fermi")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
