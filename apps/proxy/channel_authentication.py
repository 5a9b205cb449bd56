"""Authentication of the API's WebSockets: a token in the Authorization header, or the console's session cookie together
with an Origin that is the console's own, since browsers send the cookie from any page."""

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from apps.accounts.api.authentication import BearerAuthentication
from apps.accounts.models import User
from apps.common.asgi import Scope, get_header
from apps.common.errors import ApiError
from apps.policies.enforcement import check_session, check_token
from apps.policies.policy import get_policy
from apps.proxy import headers
from apps.proxy.authorizations import Authorization


@dataclass(frozen=True, slots=True)
class Requester:
    """A user, with the session or token that authenticated the request."""

    user: User
    session: str = ""
    token: str = ""

    def authorize(self, project: str, environment: str) -> Authorization:
        """Return the authorization of a connection into an environment."""
        return Authorization(self.user.pk, project, environment, session=self.session, token=self.token)


def authenticate_requester(scope: Scope) -> Requester:
    """Return the authenticated user. Raises what the API answers: 401, or 403 for another page's WebSocket. Call it in
    a thread."""
    kind, _, given = get_header(scope, b"authorization").partition(" ")
    if kind.lower() == "bearer":
        known, token = BearerAuthentication().authenticate_credentials(given.strip().encode("latin-1"))
        check_token(known)
        return Requester(known, token=token.pk)
    host = get_header(scope, b"host")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        raise ApiError(400, "HOST_NOT_ALLOWED", host=host[:200])
    key = (
        dict(headers.parse_cookies(scope["headers"])).get(settings.SESSION_COOKIE_NAME.encode(), b"").decode("latin-1")
    )
    if not key:
        raise ApiError(401, "NOT_AUTHENTICATED")
    origin = get_header(scope, b"origin")
    if origin.partition("://")[2] != host and origin not in settings.CSRF_TRUSTED_ORIGINS:
        raise ApiError(403, "CHANNEL_ORIGIN", origin=origin[:200] or "–")
    request = HttpRequest()
    request.session = SessionStore(key)
    user: object = get_user(request)
    if not isinstance(user, User):
        raise ApiError(401, "NOT_AUTHENTICATED")
    check_session(user, request.session, get_policy())
    return Requester(user, session=key)
