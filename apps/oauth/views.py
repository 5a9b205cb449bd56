"""Endpoints that programs call: tokens, device codes, registration, and the documents that tell where these are."""

from collections.abc import Callable
from functools import wraps

from allauth.idp.oidc import views as allauth_views
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe
from knox.crypto import hash_token
from oauthlib.oauth2.rfc6749.errors import OAuth2Error

from apps.oauth import addresses
from apps.oauth.models import Grant
from apps.oauth.services import clients, tokens

View = Callable[..., HttpResponse]


def _endpoint(view: View) -> View:
    """Wrap a view that programs post to: no cookie counts, nothing is kept, and what a library refuses by an exception
    is an answer 400."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if request.POST.get("client_id"):
            clients.find_client(request.POST["client_id"])
        try:
            return view(request)
        except OAuth2Error as error:
            return tokens.refuse(error.error, error.description or "", error.status_code)
        except ValidationError as error:
            return tokens.refuse("invalid_target", " ".join(error.messages))
        except ValueError:  # a body that is not form-encoded
            return tokens.refuse("invalid_request", "the body cannot be read")

    return csrf_exempt(require_POST(never_cache(guarded)))


@_endpoint
def issue_token(request: HttpRequest) -> HttpResponse:
    """Exchange a code or a refresh token for an access token."""
    return tokens.exchange(request, allauth_views.token)


@_endpoint
def revoke_token(request: HttpRequest) -> HttpResponse:
    """Revoke a token (RFC 7009), and with it all that came of the same grant."""
    digest = hash_token(request.POST.get("token", ""))
    grant = Grant.objects.filter(tokens__digest=digest, tokens__spent_at=None).first()
    response: HttpResponse = allauth_views.revoke(request)
    if grant and response.status_code == 200:
        grant.delete()
    return response


@_endpoint
def issue_device_code(request: HttpRequest) -> HttpResponse:
    """Give a device a code that a person types on another one (RFC 8628)."""
    response: HttpResponse = allauth_views.device_code(request)
    return response


@csrf_exempt
@require_POST
@never_cache
def register_client(request: HttpRequest) -> HttpResponse:
    """Register a program (RFC 7591)."""
    if not settings.IDP_OIDC_DCR_ENABLED:
        return tokens.refuse("access_denied", "registration is switched off on this platform", 403)
    if request.content_type != "application/json":
        return tokens.refuse("invalid_client_metadata", "the body must be JSON")
    response: HttpResponse = allauth_views.client_registration(request)
    return response


@require_safe
def serve_server_metadata(request: HttpRequest) -> HttpResponse:
    """Return where the endpoints are (RFC 8414)."""
    return _make_document(addresses.describe_server(request, clients.REQUESTABLE))


@require_safe
def serve_resource_metadata(request: HttpRequest, path: str = "") -> HttpResponse:
    """Return who gives tokens for the API, or for the tools at `/mcp` (RFC 9728)."""
    if path not in addresses.RESOURCE_PATHS:
        return tokens.refuse("not_found", "no such resource", 404)
    return _make_document(addresses.describe_resource(request, path, clients.list_resource_scopes(path)))


def _make_document(data: dict[str, object]) -> HttpResponse:
    return JsonResponse(data, headers={"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300"})
