"""Where people go after they signed in."""

import re

from django.conf import settings
from django.http import HttpRequest

HOME = "/"
_MAX_LENGTH = 2_000
_OTHER_SITE = re.compile(r"/[/\\]|.*[\x00-\x20\\]")


def get_safe_path(path: str | None) -> str:
    """Return `path` if it is a path of this site, else the home page: anybody may have written the address."""
    if not path or len(path) > _MAX_LENGTH or not path.startswith("/") or _OTHER_SITE.match(path):
        return HOME
    return path


def make_callback_url(request: HttpRequest, provider_id: str) -> str:
    """Return the address that a provider sends people back to, which is entered at the provider."""
    return make_address(request, f"/auth/oidc/{provider_id}/login/callback/")


def make_logout_url(request: HttpRequest, provider_id: str) -> str:
    """Return the address that a provider sends logout tokens to, which is entered at the provider."""
    return make_address(request, f"/auth/backchannel-logout/{provider_id}")


def make_address(request: HttpRequest, path: str) -> str:
    """Return the address of a path of this platform, as people use it."""
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)
