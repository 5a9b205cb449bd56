"""Celery's settings. Messages only make work start sooner: a periodic sweep finds whatever a lost message would have
triggered.

Outside of `server.settings`, because beat reads them without Django.
"""

from server.env import has_trace_collector, make_celery_url
from server.paths import get_data_dir, get_redis_url

TRACING = has_trace_collector()
CELERY_BROKER_URL = make_celery_url(get_redis_url(get_data_dir()))
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # a Redis that becomes a replica is waited for; the worker would end otherwise
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 60,  # seconds; the default, an hour, is how long a lost message would be missed
    "socket_connect_timeout": 2,
    "socket_timeout": 30,
    "max_retries": 0,  # of a sender's connection, which PUBLISH_RETRY does not cover; 6 s otherwise
}
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY = False  # a request never waits for the broker
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 8
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # in memory: the schedule is this file
CELERY_BEAT_MAX_LOOP_INTERVAL = 10  # seconds
CELERY_BEAT_SCHEDULE = {
    # A message that no worker took in time is dropped; the next one does the same work.
    "training": {"task": "training.sweep", "schedule": 2.0, "options": {"expires": 4.0}},
    "orphans": {"task": "training.orphans", "schedule": 300.0, "options": {"expires": 300.0}},
    "training-forget": {"task": "training.forget", "schedule": 600.0, "options": {"expires": 600.0}},
    "training-caches": {"task": "training.caches", "schedule": 1800.0, "options": {"expires": 1800.0}},
    "windows": {"task": "training.windows", "schedule": 30.0, "options": {"expires": 30.0}},
    "purses": {"task": "agents.purses", "schedule": 30.0, "options": {"expires": 30.0}},
    "budgets": {"task": "training.budgets", "schedule": 300.0, "options": {"expires": 300.0}},
    "sweeps": {"task": "sweeps.sweep", "schedule": 2.0, "options": {"expires": 4.0}},
    "workers": {"task": "workers.sweep", "schedule": 2.0, "options": {"expires": 4.0}},
    "workers-clean": {"task": "workers.clean", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "catalog": {"task": "catalog.sweep", "schedule": 5.0, "options": {"expires": 10.0}},
    "files": {"task": "files.sweep", "schedule": 5.0, "options": {"expires": 10.0}},
    "files-forget": {"task": "files.forget", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "code": {"task": "code.sweep", "schedule": 5.0, "options": {"expires": 10.0}},
    "code-forget": {"task": "training.code", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "outputs": {"task": "training.outputs", "schedule": 10.0, "options": {"expires": 10.0}},
    "exchange-forget": {"task": "exchange.forget", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "hours": {"task": "overview.hours", "schedule": 600.0, "options": {"expires": 600.0}},
    "notices": {"task": "notices.sweep", "schedule": 5.0, "options": {"expires": 10.0}},
    "notices-watch": {"task": "notices.watch", "schedule": 300.0, "options": {"expires": 300.0}},
    "runs-usage": {"task": "runs.usage", "schedule": 300.0, "options": {"expires": 300.0}},
    "runs-curves": {"task": "runs.curves", "schedule": 60.0, "options": {"expires": 60.0}},
    "runs-summaries": {"task": "runs.summaries", "schedule": 60.0, "options": {"expires": 60.0}},
    "schedules": {"task": "templates.schedules", "schedule": 5.0, "options": {"expires": 10.0}},
    "tensorboards": {"task": "tensorboard.sweep", "schedule": 60.0, "options": {"expires": 60.0}},
    "training-notice": {"task": "training.notice", "schedule": 15.0, "options": {"expires": 15.0}},
    "notices-forget": {"task": "notices.forget", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "endings": {"task": "clusters.endings", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "telemetry": {"task": "telemetry.fold", "schedule": 60.0, "options": {"expires": 60.0}},
    "telemetry-forget": {"task": "telemetry.forget", "schedule": 120.0, "options": {"expires": 120.0}},
    **({"traces": {"task": "training.traces", "schedule": 10.0, "options": {"expires": 10.0}}} if TRACING else {}),
}
