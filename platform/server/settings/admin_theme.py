"""Settings of the operators' console: Django's admin with the django-unfold theme."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils import timezone

from apps.common.texts import lazy_admin_text


def _make_page(title: str, icon: str, model: str) -> dict[str, Any]:
    """Return a navigation entry. `model` is `<app>.<model>`; shown to users who may view it."""
    app, name = model.split(".")

    def may_view(request: HttpRequest) -> bool:
        return request.user.has_perm(f"{app}.view_{name}")

    link = reverse_lazy(f"admin:{app}_{name}_changelist")
    return {"title": lazy_admin_text(title), "icon": icon, "link": link, "permission": may_view}


def _describe_time_zone(request: HttpRequest) -> str:
    """Return the description of the time zone in which pages show times (`server.middleware.admin_time_zone`)."""
    offset = f"{timezone.localtime():%z}"
    return lazy_admin_text(
        "TIMES_OF_ZONE", zone=timezone.get_current_timezone_name(), offset=f"{offset[:3]}:{offset[3:5]}"
    )


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": lazy_admin_text("FERMI_OPERATIONS"),
    "SITE_HEADER": lazy_admin_text("FERMI_OPERATIONS"),
    "SITE_SUBHEADER": _describe_time_zone,
    "SITE_URL": "/training",
    "SITE_ICON": lambda request: "/favicon.svg",
    "SHOW_VIEW_ON_SITE": False,
    "COLORS": {"primary": {"500": "oklch(69% .22 303.9)"}},  # links in the dark; the theme's own has 4.3:1
    "DASHBOARD_CALLBACK": "apps.training.reports.admin_overview.build_overview",
    "SIDEBAR": {
        "navigation": [
            {
                "items": [
                    {"title": lazy_admin_text("OVERVIEW"), "icon": "dashboard", "link": reverse_lazy("admin:index")},
                    _make_page("TRAINING_TASKS_TITLE", "model_training", "training.task"),
                ]
            },
            {
                "title": lazy_admin_text("RESOURCES_TITLE"),
                "items": [
                    _make_page("ENVIRONMENTS_TITLE", "dns", "clusters.devenvironment"),
                    _make_page("ENVIRONMENT_TEMPLATES", "stacks", "environments.template"),
                    _make_page("ENVIRONMENT_LIVES", "cycle", "environments.hosted"),
                    _make_page("ZONES", "location_on", "clusters.availabilityzone"),
                    _make_page("CLUSTERS_TITLE", "hub", "clusters.cluster"),
                    _make_page("WORKERS_TITLE", "memory", "workers.worker"),
                    _make_page("WORKER_GROUPS_TITLE", "group_work", "workers.group"),
                    _make_page("JOIN_TOKENS_TITLE", "vpn_key", "workers.jointoken"),
                ],
            },
            {
                "title": lazy_admin_text("SHARING_TITLE"),
                "items": [
                    _make_page("LIMITS_TITLE", "speed", "scheduling.limits"),
                    _make_page("USER_LIMITS_TITLE", "person_alert", "scheduling.userlimits"),
                    _make_page("RESERVATIONS_TITLE", "event", "scheduling.reservation"),
                    _make_page("PRICES_TITLE", "payments", "scheduling.price"),
                    _make_page("USAGE_TITLE", "receipt_long", "scheduling.usage"),
                ],
            },
            {
                "title": lazy_admin_text("DATA_AND_MODELS_TITLE"),
                "items": [
                    _make_page("DATASETS_TITLE", "database", "catalog.dataset"),
                    _make_page("DATASET_VERSIONS_TITLE", "layers", "catalog.datasetversion"),
                    _make_page("MODELS_TITLE", "neurology", "catalog.model"),
                    _make_page("LIBRARY_CACHES_TITLE", "storage", "files.librarycache"),
                ],
            },
            {
                "title": lazy_admin_text("ACCOUNTS_TITLE"),
                "items": [
                    _make_page("USERS_TITLE", "person", "accounts.user"),
                    _make_page("GROUPS", "group", "auth.group"),
                    _make_page("PROJECTS_TITLE", "folder", "accounts.project"),
                    _make_page("API_TOKENS", "key", "accounts.apitoken"),
                    _make_page("AUDIT_TRAIL_TITLE", "history", "accounts.auditevent"),
                ],
            },
        ],
    },
}
