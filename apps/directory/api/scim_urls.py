"""URLs of SCIM, below `/scim/v2/`. Their views and SCIM's library are imported for the first request only: a web
process that no directory writes to starts faster and is smaller without them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import path, re_path


def _load_later(name: str, **options: Any) -> Callable[..., HttpResponseBase]:
    def view(request: HttpRequest, **values: str) -> HttpResponseBase:
        loaded = getattr(import_module("apps.directory.api.scim"), name).as_view(**options)
        answer: HttpResponseBase = loaded(request, **values)
        return answer

    view.csrf_exempt = True  # type: ignore[attr-defined]  # as REST framework's own views: no cookie counts
    return view


urlpatterns = [
    re_path(r"^(?P<name>Bulk|Me|(Users/|Groups/)?\.search)$", _load_later("UnsupportedView")),
    path("Users", _load_later("UsersView")),
    path("Users/<str:person_id>", _load_later("UserView")),
    path("Groups", _load_later("GroupsView")),
    path("Groups/<str:group_id>", _load_later("GroupView")),
    path("ServiceProviderConfig", _load_later("ServiceView")),
    path("ResourceTypes", _load_later("DescriptionsView", kind="ResourceTypes")),
    path("ResourceTypes/<str:key>", _load_later("DescriptionsView", kind="ResourceTypes")),
    path("Schemas", _load_later("DescriptionsView", kind="Schemas")),
    path("Schemas/<str:key>", _load_later("DescriptionsView", kind="Schemas")),
    re_path("", _load_later("UnknownView")),
]
