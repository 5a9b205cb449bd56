"""API authentication: a token in the Authorization header, or the console's session cookie."""

import logging
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from apps.accounts.models import ApiToken, User
from apps.accounts.scopes import TokenRights
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.common import request_id
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.sql import CompiledInstances

log = logging.getLogger(__name__)

USE_INTERVAL = timedelta(minutes=1)
"""How exactly a token's last use is known: it is not written for each request."""

_TOKENS = CompiledInstances(ApiToken, lambda digest: ApiToken.objects.filter(digest=digest), "user")


class BearerAuthentication(TokenAuthentication):
    """Authenticates `Authorization: Bearer <token>` by the token's hash, in one query. It is read on each request, so
    that a revoked token is refused at once by all processes."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, ApiToken]:
        found = _TOKENS.first(digest=hash_token(token.decode("latin-1")))
        if found is None or (found.expiry and found.expiry <= now()) or not found.user.is_active:
            raise AuthenticationFailed
        _note_use(found)
        limit_user(found.user, found)
        return found.user, found


def limit_user(user: User, token: ApiToken) -> None:
    """Give the instance `user` the rights that the token leaves of its user's. It must not be saved any more."""
    scopes, projects, tasks = (
        None if some is None else frozenset(some) for some in (token.scopes, token.projects, token.tasks)
    )
    rights = TokenRights(
        token.digest[:TOKEN_ID_LENGTH], token.name, scopes, projects, tasks, administrator=user.is_superuser
    )
    if rights.projects is not None:
        user.is_superuser = user.is_staff = False
    user.token_rights = rights


def _note_use(token: ApiToken) -> None:
    moment = now()
    if token.last_used_at and moment - token.last_used_at < USE_INTERVAL:
        return
    try:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=moment, last_used_from=request_id.get_client_address())
    except DatabaseError as error:  # it can be read, and for now not written: no reason to refuse a request
        log.warning("the last use of a token is not written: %s", error)


class CookieAuthentication(SessionAuthentication):
    """Authenticates the console's session cookie; requests that change something also need X-CSRFToken."""

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise ApiError(403, "CSRF_FAILED", detail=str(error.detail)) from error


def is_signed_in(request: HttpRequest) -> bool:
    """Return True if a request that has not passed Django's middleware carries a valid token or session."""
    request.session = SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    try:
        return BearerAuthentication().authenticate(Request(request)) is not None or get_user(request).is_authenticated
    except APIException:
        return False


class BearerScheme(OpenApiAuthenticationExtension):
    target_class = BearerAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class CookieScheme(OpenApiAuthenticationExtension):
    target_class = CookieAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
