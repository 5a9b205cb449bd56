"""URLs: the API, sign-in, the admin, health, and the console for everything else."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from apps.accounts.password_reset import request_password_reset
from apps.accounts.views import sign_in_by_link
from apps.common.api import UnknownPathView
from apps.policies.views import serve_second_factor_picture
from apps.proxy.views import open_environment
from server import documents, views

api: list[URLPattern | URLResolver] = [
    path("", include("apps.training.api.urls")),  # the most asked for comes first
    path("", include("apps.accounts.api.urls")),
    path("", include("apps.policies.api.urls")),
    path("", include("apps.identity.api.urls")),
    path("", include("apps.oauth.api.urls")),
    path("", include("apps.directory.api.urls")),
    path("", include("apps.notices.api.urls")),
    path("", include("apps.audit_stream.api.urls")),
    path("", include("apps.clusters.api.urls")),
    path("", include("apps.catalog.api.urls")),
    path("", include("apps.scheduling.api.urls")),
    path("", include("apps.workers.api.urls")),
    path("", include("apps.runs.api.urls")),
    path("", include("apps.sweeps.api.urls")),
    path("", include("apps.overview.api.urls")),
    path("", include("apps.environments.api.urls")),
    path("", include("apps.proxy.api.urls")),
    path("", include("apps.code.api.urls")),
    path("", include("apps.files.api.urls")),
    path("", include("apps.templates.api.urls")),
    path("", include("apps.tensorboard.api.urls")),
    path("", include("apps.agents.api.urls")),
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
]

admin.autodiscover()  # only who serves pages needs it: it imports half of the code

device_page = [path("oauth/device", views.serve_console, name="device_authorization")]  # where allauth sends people
oauth_pages = [path("", include((device_page, "oidc")))]

urlpatterns = [
    path("api/v1/", include(api)),
    re_path("^api(/|$)", UnknownPathView.as_view()),
    path("mlflow/", include("apps.mlflow.api.urls")),
    path("tensorboard-feed/", include("apps.tensorboard.api.feed_urls")),
    path("scim/v2/", include("apps.directory.api.scim_urls")),
    path("_allauth/browser/v1/auth/password/request", request_password_reset),  # before allauth's own
    path("_allauth/", include("allauth.headless.urls")),
    path("", include((oauth_pages, "idp"))),
    path("", include("apps.oauth.urls")),
    path("auth/link/<str:secret>", sign_in_by_link),
    path("auth/second-factor.svg", serve_second_factor_picture),
    path("auth/", include("apps.identity.oidc.urls")),
    path("auth/", include("apps.identity.vendors.urls")),
    path("auth/", include("apps.identity.saml.urls")),
    path("environments/<str:environment_id>/open", open_environment),
    path("admin/login/", views.redirect_admin_login),
    path("admin/", admin.site.urls),
    path("client.whl", views.serve_client_wheel),
    path("client/<str:name>", views.serve_client_wheel),
    path("llms.txt", documents.serve_index),
    path("docs/<path:name>", documents.serve_page),
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("metrics", views.MetricsView.as_view()),
    re_path(r"^(?!api/|mlflow/|scim/|tensorboard-feed/|_allauth/|admin/|static/|assets/)", views.serve_console),
]
