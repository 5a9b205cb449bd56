"""Views: health, metrics, the client's wheel, and the console's single page."""

import hmac

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound, HttpResponseRedirect, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.api.authentication import BearerAuthentication, CookieAuthentication
from apps.accounts.api.permissions import require_scope
from apps.common import disks
from apps.common.texts import render_text
from server import client_wheel, metrics, readiness


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200: this process answers (liveness)."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200 where the database, the broker and the disk accept writes; 503 with `parts` and `faults` otherwise.
    `warnings`: conditions that may become faults, such as a disk at 90 %, processes that were replaced, and gaps in the
    isolation of tasks."""
    faults = {fault.part: fault.code for fault in readiness.list_faults()}
    nearly_full = disks.find_nearly_full(settings.DATA_DIR)
    body = {
        "status": "unavailable" if faults else "ok",
        "parts": {part: part not in faults for part in readiness.PARTS},
        "faults": [{"part": part, "code": code, "message": render_text(code)[0]} for part, code in faults.items()],
        "warnings": [
            *([{"code": "DISK_NEARLY_FULL", "percent": nearly_full["percent"]}] if nearly_full else []),
            *(
                {**note, "message": render_text(note["code"], note["params"])[0]}
                for note in readiness.read_supervisor_notes()
            ),
        ],
    }
    return JsonResponse(body, status=503 if faults else 200)


SCRAPER = "scraper"


class ScrapeToken(BaseAuthentication):
    """Authentication by `Authorization: Bearer <FERMI_METRICS_TOKEN>`: its holder may read metrics and nothing else."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, str] | None:
        wanted = f"Bearer {settings.METRICS_TOKEN}".encode()
        given = request.headers.get("Authorization", "").encode()
        if settings.METRICS_TOKEN and hmac.compare_digest(given, wanted):
            return AnonymousUser(), SCRAPER
        return None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class MayScrape(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.auth == SCRAPER:
            return True
        require_scope(request.user, "usage:read")
        return bool(getattr(request.user, "is_superuser", False))


@extend_schema(exclude=True)
class MetricsView(APIView):
    """Prometheus metrics, for the scrape token or an administrator. Listening on loopback only does not make this
    unnecessary: on a shared machine every user reaches loopback."""

    authentication_classes = (ScrapeToken, BearerAuthentication, CookieAuthentication)
    permission_classes = (MayScrape,)

    def get(self, request: Request) -> HttpResponse:
        found: HttpResponse = ExportToDjangoView(request)
        found.content += metrics.render_metrics()
        return found


@never_cache
@require_safe
def serve_client_wheel(request: HttpRequest, name: str = "") -> HttpResponse:
    """Return the wheel of the `fermi` command, without authentication: it is this project's code and holds nothing of
    this platform. Without the file's name: a redirect to it. 404 for another name, with the command that installs this
    one."""
    wheel = client_wheel.build_wheel()
    if not name:
        return HttpResponseRedirect(f"/client/{wheel.name}")
    if name != wheel.name:
        address = request.build_absolute_uri(f"/client/{wheel.name}")
        return HttpResponseNotFound(f"pip install {address}\n", content_type="text/plain; charset=utf-8")
    return HttpResponse(wheel.content, content_type="application/zip")


@never_cache
@require_safe
def redirect_admin_login(request: HttpRequest) -> HttpResponse:
    """Redirect a user whom Django's admin does not admit: to sign-in, where failed attempts are counted, or to a page
    that says who has access."""
    if not request.user.is_authenticated:
        return HttpResponseRedirect("/sign-in?next=/admin/")
    return HttpResponseRedirect("/admin/" if request.user.is_staff else "/operators-only")


@never_cache
@require_safe
@ensure_csrf_cookie
def serve_console(request: HttpRequest) -> HttpResponse:
    """Return the console's page, for every path that the console routes itself; 503 where it has not been built."""
    try:
        return HttpResponse((settings.FRONTEND_DIST / "index.html").read_bytes())
    except FileNotFoundError:
        text = "The console has not been built yet: run `make up`, or `npm run build` in frontend/.\n"
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")
