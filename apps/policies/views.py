"""The picture by which an app of one-time codes is set up."""

from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET


@never_cache
@require_GET
def serve_second_factor_picture(request: HttpRequest) -> HttpResponse:
    """Return the QR code of the secret that this session is about to set up; 404 without one."""
    secret = request.session.get(SECRET_SESSION_KEY) if request.user.is_authenticated else None
    if not secret:
        return HttpResponse(status=404)
    adapter = get_adapter()
    picture = adapter.build_totp_svg(adapter.build_totp_url(request.user, secret))
    return HttpResponse(picture, content_type="image/svg+xml")
