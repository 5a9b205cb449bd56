"""Settings of the web process: middleware, sign-in, REST framework, schema, static files, security headers."""

import os

from server.env import read_flag, read_secret_key, read_setting, read_words
from server.paths import ROOT, get_data_dir

SECRET_KEY = read_secret_key(get_data_dir())
ROOT_URLCONF = "server.urls"
ASGI_APPLICATION = "server.asgi.application"
WSGI_APPLICATION = "server.wsgi.application"

MIDDLEWARE = [
    "apps.common.middleware.RequestIdMiddleware",
    "apps.accounts.api.rate_limits.limit_rates",
    "apps.common.middleware.envelope_errors",
    "apps.common.middleware.add_etags",
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "server.middleware.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "server.middleware.admin_time_zone",
    "apps.common.middleware.UnstorableInputMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "apps.accounts.sessions.track_sessions",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Sign-in ------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
HEADLESS_ONLY = True
HEADLESS_CLIENTS = ("browser",)
HEADLESS_FRONTEND_URLS = {
    "account_confirm_email": "/account/verify-email/{key}",
    "account_reset_password": "/account/password/reset",
    "account_reset_password_from_key": "/account/password/reset/{key}",
    "account_signup": "/sign-in",
}
SIGNUP = read_flag("FERMI_SIGNUP")
TOKEN_MAX_DAYS = read_setting("FERMI_TOKEN_MAX_DAYS")  # 0: no limit
ACCOUNT_ADAPTER = "apps.accounts.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
LOCAL_ACCOUNTS = read_flag("FERMI_LOCAL_ACCOUNTS", default=True)
EXCHANGE_ISSUERS: list[str] = read_setting("FERMI_EXCHANGE_ISSUERS")
SOCIALACCOUNT_ADAPTER = "apps.identity.adapter.SocialAccountAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]

IDP_OIDC_ADAPTER = "apps.oauth.adapter.OAuthAdapter"
IDP_OIDC_DCR_ENABLED = read_flag("FERMI_OAUTH_REGISTRATION", default=True)
IDP_OIDC_DCR_REQUIRES_INITIAL_ACCESS_TOKEN = False
IDP_OIDC_RATE_LIMITS = {"client_registration": "10/m/ip", "device_user_code": "20/m/user"}
IDP_OIDC_AUTHORIZATION_CODE_EXPIRES_IN = 60  # seconds
IDP_OIDC_DEVICE_CODE_EXPIRES_IN = 600  # seconds

KNOX_TOKEN_MODEL = "accounts.ApiToken"
MIGRATION_MODULES = {"knox": None}  # its own token table, which ours replaces, would be made all the same
REST_KNOX = {"AUTH_HEADER_PREFIX": "Bearer", "TOKEN_TTL": None, "TOKEN_PREFIX": "fermi_"}

# REST framework -----------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.accounts.api.authentication.BearerAuthentication",
        "apps.accounts.api.authentication.CookieAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "apps.accounts.api.rate_limits.WithinRateLimit",
        "rest_framework.permissions.IsAuthenticated",
        "apps.accounts.api.permissions.HasScope",
        "apps.agents.api.permissions.WithinPurse",
    ],
    "DEFAULT_PARSER_CLASSES": ["apps.common.renderers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["apps.common.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "apps.common.renderers.JSONOnlyNegotiation",
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "apps.common.openapi.StrictSchema",
    "EXCEPTION_HANDLER": "apps.common.exception_handler.handle_exception",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "TEST_REQUEST_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Fermi",
    "VERSION": "1",
    "DESCRIPTION": "Distributed training: environments, tasks, logs, metrics.",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.common.openapi.add_structs",
    ],
    "ENUM_NAME_OVERRIDES": {
        "TaskState": "apps.training.api.serializers.STATES",
        "SweepState": "apps.sweeps.api.serializers.STATES",
        "SweepTrialState": "apps.sweeps.api.serializers.TRIAL_STATES",
        "SweepMethod": "apps.sweeps.api.serializers.METHODS",
        "SweepAction": "apps.sweeps.api.serializers.ACTIONS",
        "EnvironmentStatus": "apps.clusters.models.EnvironmentStatus",
        "EnvironmentKind": "apps.clusters.models.EnvironmentKind",
        "VersionStatus": "apps.catalog.models.VersionStatus",
        "Role": "apps.accounts.models.Role",
        "UploadState": "apps.files.models.UploadState",
        "WorkerStatus": "apps.workers.api.serializers.WORKER_STATUSES",
        "WorkerProcessState": "apps.workers.api.serializers.PROCESS_CHOICES",
        "ShownProcessState": "apps.workers.api.serializers.SHOWN_PROCESS_CHOICES",
        "GroupAction": "apps.workers.api.serializers.ACTIONS",
        "AllowedActionsEnum": "apps.training.api.serializers.ACTIONS",
        "CommunicationBackend": "apps.workers.models.CommunicationBackend",
        "FindingLevel": "apps.clusters.api.serializers.LEVELS",
        "LogLevel": "apps.training.api.serializers.LOG_LEVELS",
        "CodeChoice": "apps.training.api.serializers.CODE_CHOICES",
        "DiagnosisLevel": "apps.training.api.serializers.LEVELS",
        "FindingActionCode": "apps.training.api.serializers.ACTION_CODES",
        "JudgedLevel": "apps.training.preflight.api.JUDGED_LEVELS",
        "DrillLevel": "apps.training.drills.api.DRILL_LEVELS",
        "PriorityClass": "apps.training.api.serializers.PRIORITY_CLASSES",
        "PreflightDetailAllowedActionsEnum": "apps.training.preflight.api.STOP_ACTIONS",
        "PreflightLevel": "apps.training.preflight.api.TEST_LEVELS",
        "PreflightStatus": "apps.training.preflight.api.PREFLIGHT_STATUSES",
        "IdentityProviderKind": "apps.identity.api.serializers.KINDS",
        "IncidentKind": "apps.notices.api.serializers.KIND_CHOICES",
        "NoticeChannelKind": "apps.notices.api.serializers.CHANNELS",
        "AttentionKind": "apps.overview.api.serializers.ATTENTION_KINDS",
        "AttentionSubjectType": "apps.overview.api.serializers.ATTENTION_SUBJECTS",
        "CapacityEventKind": "apps.overview.api.serializers.CAPACITY_KINDS",
        "MediaKind": "apps.runs.api.series.KINDS",
        "RunDifferenceKind": "apps.runs.api.differences.KIND_CHOICES",
        "DivergenceVerdict": "apps.runs.api.differences.VERDICT_CHOICES",
        "DivergenceBasis": "apps.runs.api.differences.BASIS_CHOICES",
        "TemplateParameterType": "apps.templates.api.templates.TYPES",
        "ScheduleRunOutcome": "apps.templates.api.schedules.OUTCOMES",
    },
    "COMPONENT_SPLIT_REQUEST": False,  # what comes in and what goes out are different serializers anyway
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SORT_OPERATIONS": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

RATE_LIMIT: int = read_setting("FERMI_RATE_LIMIT")
RATE_LIMIT_ANONYMOUS: int = read_setting("FERMI_RATE_LIMIT_ANONYMOUS")
METRICS_TOKEN = os.environ.get("FERMI_METRICS_TOKEN", "")

# Static files -------------------------------------------------------------------------------------
STATIC_URL = "/static/"
FRONTEND_DIST = ROOT / "frontend" / "dist"
WHITENOISE_ROOT = FRONTEND_DIST if FRONTEND_DIST.is_dir() else None
WHITENOISE_USE_FINDERS = True
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/assets/.+-[A-Za-z0-9_-]{8}\.\w+(\.map)?$"

# Security -----------------------------------------------------------------------------------------
PUBLIC_URL = os.environ.get("FERMI_PUBLIC_URL", "").rstrip("/")
RANKS_URL = os.environ.get("FERMI_RANKS_URL", "").rstrip("/")
TENSORBOARD_IMAGE = os.environ.get("FERMI_TENSORBOARD_IMAGE", "").strip()
TENSORBOARD_PACKAGES = read_words("FERMI_TENSORBOARD_PACKAGES") or ["tensorboard>=2.20"]
OWN_URL = os.environ.get("FERMI_URL", "").rstrip("/")  # set by `make up`: where it serves
DOOR_HOST = read_setting("FERMI_DOOR_HOST")
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL] if PUBLIC_URL else []
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PUBLIC_URL.startswith("https://")
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # the console's toasts and charts set styles from script
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
# The operators' theme computes what it shows from expressions in its pages' attributes, which Alpine compiles. Inline
# scripts stay forbidden there too.
ADMIN_CONTENT_SECURITY_POLICY = CONTENT_SECURITY_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")
DATA_UPLOAD_MAX_MEMORY_SIZE = 1 << 20  # of forms; bodies of the API: apps/common/bounds.py
APPEND_SLASH = False
