"""The operators' console: Django's admin in django-unfold's clothes."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy

from apps.common.texts import both


def _page(zh: str, en: str, icon: str, model: str) -> dict[str, Any]:
    """`model` is `<app>.<model>`; shown to those who may view it."""
    app, name = model.split(".")

    def may_view(request: HttpRequest) -> bool:
        return request.user.has_perm(f"{app}.view_{name}")

    link = reverse_lazy(f"admin:{app}_{name}_changelist")
    return {"title": both(zh, en), "icon": icon, "link": link, "permission": may_view}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": both("Fermi 运维", "Fermi operations"),
    "SITE_HEADER": both("Fermi 运维", "Fermi operations"),
    "SITE_URL": "/training",
    "SITE_ICON": lambda request: "/favicon.svg",
    "SHOW_VIEW_ON_SITE": False,
    "COLORS": {"primary": {"500": "oklch(69% .22 303.9)"}},  # links in the dark; the theme's own has 4.3:1
    "DASHBOARD_CALLBACK": "apps.training.shown.overview.overview",
    "SIDEBAR": {
        "navigation": [
            {
                "items": [
                    {"title": both("总览", "Overview"), "icon": "dashboard", "link": reverse_lazy("admin:index")},
                    _page("训练任务", "Training tasks", "model_training", "training.task"),
                ]
            },
            {
                "title": both("资源", "Resources"),
                "items": [
                    _page("开发环境", "Environments", "dns", "clusters.devenvironment"),
                    _page("可用区", "Zones", "location_on", "clusters.availabilityzone"),
                    _page("集群", "Clusters", "hub", "clusters.cluster"),
                    _page("Worker", "Workers", "memory", "workers.worker"),
                    _page("Worker 分组", "Worker groups", "group_work", "workers.group"),
                    _page("加入令牌", "Join tokens", "vpn_key", "workers.jointoken"),
                ],
            },
            {
                "title": both("数据与模型", "Data and models"),
                "items": [
                    _page("数据集", "Datasets", "database", "catalog.dataset"),
                    _page("数据集版本", "Dataset versions", "layers", "catalog.datasetversion"),
                    _page("模型", "Models", "neurology", "catalog.model"),
                ],
            },
            {
                "title": both("账号", "Accounts"),
                "items": [
                    _page("用户", "Users", "person", "accounts.user"),
                    _page("用户组", "Groups", "group", "auth.group"),
                    _page("项目", "Projects", "folder", "accounts.project"),
                    _page("API 令牌", "API tokens", "key", "accounts.apitoken"),
                    _page("审计记录", "Audit trail", "history", "accounts.auditevent"),
                ],
            },
        ],
    },
}
