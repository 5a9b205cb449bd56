"""Settings of the web, worker, beat and watcher processes.

One set for both sizes of the platform; the environment decides:

FERMI_DATA           data directory (default: var/)
DATABASE_URL         postgresql://user:password@host:port/name; without it SQLite in the data directory
REDIS_URL            redis://…; without it the embedded broker that `make up` starts
FERMI_DATA_ROOTS     colon-separated folders that datasets may be made from, beside datasets/ and workspace/ of the data
                     directory
FERMI_FILES          files of projects: a folder (default: files/ of the data directory), or s3://bucket/prefix, with
                     FERMI_FILES_ENDPOINT, FERMI_FILES_KEY and FERMI_FILES_SECRET, or AWS's own variables
FERMI_CARRIED_FOLDER_GB  of a checkpoint that is brought from an environment without the platform's data directory (20);
                     FERMI_CARRIED_TASK_GB: of all that a task writes there (100); FERMI_CARRIED_DATA_GB: of what it
                     reads, and is sent there (10)
FERMI_FILES_MAX_FILE_GB  of one file of a project (512)
FERMI_CACHE_MAX_GB   of what libraries of a project's tasks keep in its cache (200; 0: no limit), unless the project's
                     limits say otherwise
FERMI_ISOLATION      what keeps training on this machine from the platform's own: "auto" (another user if we are root,
                     Landlock where the kernel has it), "user", "landlock", or "off"
FERMI_TASK_USER      that other user, by name or number (fermi-tasks, else 61000)
FERMI_TASK_READS     colon-separated folders that training may read, beside what each task is given
                     (/data:/datasets:/mnt:/scratch)
FERMI_TASK_WRITES    those that it may write to as well (none)
FERMI_PRIVATE        colon-separated paths that training must not reach either, e.g. a folder of kubeconfigs
FERMI_SECRET_KEY     signing key; without it one is made in the data directory
FERMI_ALLOWED_HOSTS  comma-separated host names, beside the loopback ones and FERMI_PUBLIC_URL's
FERMI_PUBLIC_URL     the address people use, e.g. https://fermi.example.org, when a proxy stands in front
FERMI_RANKS_URL      the address at which ranks reach the platform, to log to it as their MLflow server; by default
                     FERMI_PUBLIC_URL, and on the platform's own machine the address of `make up`
FERMI_TRUSTED_PROXIES  comma-separated addresses and networks of proxies, whose X-Forwarded-For and -Proto count; by
                     default this machine's own with FERMI_PUBLIC_URL, and none without it
FERMI_DOOR_HOST      below which each environment has a host name of its own, e.g. fermi-doors.example.org[:port];
                     without it environments open where the console is on localhost alone
FERMI_RATE_LIMIT     requests per minute that a token, or a signed-in user, may make of the API (1200; 0: no limit)
FERMI_RATE_LIMIT_ANONYMOUS  of an address that are refused for want of a valid sign-in (120; 0: no limit)
FERMI_METRICS_TOKEN  opens /metrics to whoever sends it (Authorization: Bearer …), beside administrators
FERMI_OAUTH_REGISTRATION  "0" lets no program register itself as an OAuth client; the command line is one always
FERMI_SIGNUP         "1" lets anyone who reaches the console make an account (without a project)
FERMI_IDENTITY_PROVIDERS  providers that people sign in with: JSON, or the path of a JSON or TOML file (docs/sign-in.md)
FERMI_OIDC_URL       one such provider: the issuer's address, with FERMI_OIDC_CLIENT_ID, FERMI_OIDC_CLIENT_SECRET and
                     FERMI_OIDC_NAME, what its button says
FERMI_LOCAL_ACCOUNTS "0" refuses passwords: people sign in by a provider, or by a link that `fermi login-link` makes
FERMI_EXCHANGE_ISSUERS  comma-separated: whose ID tokens pipelines may exchange for an API token
                     (https://token.actions.githubusercontent.com,https://gitlab.com; empty: nobody's)
FERMI_TOKEN_MAX_DAYS  for how many days an API token may be valid at most (0: no limit)
FERMI_MASTER_PORTS   29500-32767 by default: where tasks get their rendezvous ports (below Linux's ephemeral ones)
FERMI_LOG_ZONE       time zone of times in ranks' logs that name none, e.g. Asia/Shanghai (UTC)
FERMI_PREFLIGHT_PATIENCE  12 by default: seconds that the nodes of a pre-flight test wait for each other
FERMI_WARM_MINUTES   after which a process that stands by in an environment ends, if nobody asks for it (30)
FERMI_STAND_BY       "0" keeps no process standing by with the training stack imported (saves its ~300 MB)
FERMI_TENSORBOARD_IMAGE  the image in which TensorBoards run on engines of containers; by default that of a template
FERMI_TENSORBOARD_PACKAGES  comma-separated requirements that are installed for them (tensorboard>=2.20)
FERMI_WORKER_HEARTBEAT  seconds between two heartbeats of a worker (5)
FERMI_WORKER_LOST    seconds without one until a worker counts as lost (15)
FERMI_INTERNAL_ADDRESS  at which other processes of the platform reach this one, e.g. its pod's address (127.0.0.1)
FERMI_NOTICE_HOSTS   comma-separated: where messages may go. Host names (*.example.org; * = any public one), addresses
                     and networks (10.0.0.0/8); without it nowhere
FERMI_GIT_HOSTS      comma-separated, in the same way: where git may fetch code from; any public host by default
FERMI_CODE_MAX_MB    of a snapshot of code (512), FERMI_CODE_MAX_FILE_MB of one of its files (100), and
FERMI_CODE_MAX_FILES of how many (50000)
FERMI_CODE_KEEP_DAYS after how long a snapshot that no task refers to is removed (30)
FERMI_TASKS_KEEP_DAYS after how long tasks that have ended are removed with all that is theirs (never)
OTEL_EXPORTER_OTLP_ENDPOINT  where traces go, with OpenTelemetry's further variables; without it nothing is traced
FERMI_CURRENCY       what prices and budgets are in (CNY)
FERMI_TRACEABLE      "1" lets debuggers and profilers of the same user look into the platform's processes
FERMI_LOG            "json" for one JSON object per line
FERMI_LOG_LEVEL      INFO by default
FERMI_DEBUG          "1" for Django's debug pages
"""

import os
from urllib.parse import urlsplit

from fermi import messages
from fermi.runner import programs
from server.celery_settings import *  # noqa: F403
from server.env import read_flag, read_setting, read_words
from server.logs import LOGGING as LOGGING
from server.paths import ROOT
from server.settings.admin_theme import UNFOLD as UNFOLD
from server.settings.storage import *  # noqa: F403
from server.settings.storage import DATA_DIR, TASK_WRITES
from server.settings.web import *  # noqa: F403

programs.set_trusted_path([str(DATA_DIR), *TASK_WRITES])

DEBUG = read_flag("FERMI_DEBUG")

INSTALLED_APPS = [
    "server",
    "unfold",
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_prometheus",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.headless",
    "apps.identity.allauth_app.SocialAccountConfig",
    "apps.common",
    "apps.accounts",
    "apps.identity",
    "apps.identity.exchange",
    "allauth.idp.oidc",
    "apps.oauth",
    "apps.directory",
    "apps.notices",
    "apps.clusters",
    "apps.catalog",
    "apps.scheduling",
    "apps.telemetry",
    "apps.files",
    "apps.environments",
    "apps.code",
    "apps.training",
    "apps.runs",
    "apps.mlflow",
    "apps.templates",
    "apps.tensorboard",
    "apps.workers",
    "apps.sweeps",
    "apps.proxy",
    "apps.overview",
    "apps.agents",
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = messages.LANGUAGES[messages.DEFAULT].django
LANGUAGES = [(language.django, language.name) for language in messages.LANGUAGES.values()]
LOCALE_PATHS = [ROOT / "platform" / "server" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

DEMO = read_flag("FERMI_DEMO", default=True)
LOG_ZONE = read_setting("FERMI_LOG_ZONE")
MASTER_PORTS = read_setting("FERMI_MASTER_PORTS")
PREFLIGHT_PATIENCE = read_setting("FERMI_PREFLIGHT_PATIENCE")
WARM_MINUTES = read_setting("FERMI_WARM_MINUTES")
STAND_BY = read_flag("FERMI_STAND_BY", default=True)
NOTICE_HOSTS = read_words("FERMI_NOTICE_HOSTS")
INTERNAL_ADDRESS = os.environ.get("FERMI_INTERNAL_ADDRESS") or "127.0.0.1"
GIT_HOSTS = read_words("FERMI_GIT_HOSTS") or ["*"]
CODE_MAX_MB = read_setting("FERMI_CODE_MAX_MB")
CODE_MAX_FILE_MB = read_setting("FERMI_CODE_MAX_FILE_MB")
CODE_MAX_FILES = read_setting("FERMI_CODE_MAX_FILES")
CODE_KEEP_DAYS = read_setting("FERMI_CODE_KEEP_DAYS")
TASKS_KEEP_DAYS = read_setting("FERMI_TASKS_KEEP_DAYS")
CURRENCY = os.environ.get("FERMI_CURRENCY") or "CNY"
WORKER_HEARTBEAT_SECONDS = read_setting("FERMI_WORKER_HEARTBEAT")
WORKER_LOST_SECONDS = read_setting("FERMI_WORKER_LOST")
WORKER_SUSPECT_SECONDS = min(
    2 * WORKER_HEARTBEAT_SECONDS + 2, WORKER_LOST_SECONDS
)  # what is heard is stored within two seconds
EXTRA_HOSTS = read_words("FERMI_ALLOWED_HOSTS")
_PUBLIC_HOST = urlsplit(PUBLIC_URL).hostname  # noqa: F405
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *EXTRA_HOSTS, *([_PUBLIC_HOST] if _PUBLIC_HOST else [])]
