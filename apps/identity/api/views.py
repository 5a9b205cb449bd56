"""Endpoints of sign-in by providers, and of the providers themselves."""

import re
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest
from rest_framework.permissions import AllowAny

from apps.accounts import access
from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.errors import ApiError
from apps.common.pages import paginate_items
from apps.common.texts import render_text
from apps.identity import selectors, services
from apps.identity.api import serializers as shapes
from apps.identity.configuration import ProviderConfiguration
from apps.identity.oidc.sign_out import find_sign_out_address
from apps.identity.paths import make_callback_url, make_logout_url
from apps.identity.provider_settings import OPENID_KINDS
from apps.identity.starts import STARTS
from fermi import messages


class SignInProvidersView(APIView):
    """Serves the sign-in page, so it needs no sign-in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("listSignInProviders", scope="any", query=shapes.SignInProvidersQuery, data=shapes.SignInProviders)
    def get(self, request: Request, query: Query) -> Data:
        """Return by what people may sign in, and why a sign-in by a provider was refused."""
        found = [one for one in selectors.list_configurations() if one.kind in STARTS]
        providers = [{"id": one.id, "name": one.name, "kind": one.kind} for one in found]
        return {
            "localAccounts": settings.LOCAL_ACCOUNTS,
            "providers": providers,
            "refusal": _explain_refusal(query.get("error", "")),
        }


class SignInStartView(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("startSignIn", scope="any", body=shapes.SignInStartRequest, data=shapes.SignInStart)
    def post(self, request: Request, provider_id: str, body: Body) -> Data:
        """Begin a sign-in by a provider in this browser, and return where it goes: to the provider, or back to the
        sign-in page with the reason. 404 for a provider that is not there or disabled."""
        return _start(request._request, provider_id, next_url=body.get("next", "/"))


class SignOutView(APIView):
    @operation("signOut", scope="any", data=shapes.SignedOut)
    def post(self, request: Request) -> Data:
        """End this browser's session, and return where it goes to sign out at the identity provider, too: null unless
        the session began by a provider that is set so. A token has no session, and stays."""
        if request.auth is not None:
            return {"url": None}
        url = find_sign_out_address(request._request)
        logout(request._request)
        return {"url": url}


class IdentityProvidersView(APIView):
    @operation(
        "listIdentityProviders",
        scope="identity:read",
        query=shapes.IdentityProviderQuery,
        page=shapes.IdentityProviderItem,
    )
    def get(self, request: Request, query: Query) -> Data:
        """List the providers that people sign in with, without secrets (administrator)."""
        access.require_administrator(request.user)
        words = query["search"].lower()
        found = [one for one in selectors.list_configurations(enabled=None) if words in f"{one.id} {one.name}".lower()]
        counts = selectors.count_links()
        return paginate_items([serialize_provider(request, one, counts.get(one.id, 0)) for one in found], query)

    @operation(
        "createIdentityProvider",
        scope="identity:write",
        body=shapes.IdentityProviderCreateRequest,
        data=shapes.IdentityProviderItem,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Set up a provider (administrator). All problems are reported at once. 409 where the id is taken."""
        return _serialize_row(request, services.create_provider(request.user, **body).pk)


class IdentityProviderView(APIView):
    @operation("getIdentityProvider", scope="identity:read", data=shapes.IdentityProviderItem)
    def get(self, request: Request, provider_id: str) -> Data:
        """Return one provider (administrator)."""
        access.require_administrator(request.user)
        return _serialize_row(request, provider_id)

    @operation(
        "changeIdentityProvider",
        scope="identity:write",
        body=shapes.IdentityProviderChangeRequest,
        partial=True,
        data=shapes.IdentityProviderItem,
    )
    def patch(self, request: Request, provider_id: str, body: Body) -> Data:
        """Change a provider (administrator). Its id and kind stay, and so does a secret that is not given. 409 for one
        of the platform's environment, and for another issuer while accounts are linked."""
        return _serialize_row(request, services.change_provider(request.user, provider_id, body).pk)

    @operation("deleteIdentityProvider", scope="identity:write")
    def delete(self, request: Request, provider_id: str) -> None:
        """Delete a provider with the links of accounts to it (administrator). Accounts stay. A disabled provider keeps
        its links."""
        services.delete_provider(request.user, provider_id)


class IdentityProviderTrialView(APIView):
    @operation("tryIdentityProvider", scope="identity:write", data=shapes.SignInStart)
    def post(self, request: Request, provider_id: str) -> Data:
        """Begin a trial of a provider in this browser, signed in as administrator: the address returned ends at a page
        with the claims. It changes no session and no account. A disabled provider can be tried."""
        access.require_administrator(request.user)
        if request.auth is not None:
            raise ApiError(400, "IDENTITY_TRIAL_BROWSER")
        return _start(request._request, provider_id, enabled=None, test=True)


class IdentityProviderLinksView(APIView):
    @operation(
        "linkIdentity",
        scope="identity:write",
        body=shapes.IdentityProviderLinkRequest,
        data=shapes.IdentityProviderLink,
        status=201,
    )
    def post(self, request: Request, provider_id: str, body: Body) -> Data:
        """Let a person of a provider sign in to an existing account (administrator). 409 where the provider's person
        has one."""
        return services.link_account(request.user, provider_id, **body)

    @operation("unlinkIdentities", scope="identity:write", data=shapes.IdentityProviderLinksDeleted)
    def delete(self, request: Request, provider_id: str) -> Data:
        """Delete all links of accounts to a provider (administrator). Accounts and sessions stay; who has no password
        is linked again by an administrator."""
        return {"deleted": services.delete_links(request.user, provider_id)}


def _explain_refusal(code: str) -> dict[str, str] | None:
    """Return the text of a code of `apps.identity`: anybody may have written the address."""
    if not re.fullmatch("IDENTITY_[A-Z_]+", code) or not messages.has_text(code):
        return None
    message, hint = render_text(code)
    return {"error": code, "message": message, "hint": hint}


def _start(
    request: HttpRequest, provider_id: str, *, next_url: str = "/", enabled: bool | None = True, **state: Any
) -> dict[str, Any]:
    """Return the address that a provider's sign-in begins at; `state` is stored in the session until it ends. Raises
    ApiError 404."""
    configuration = selectors.find_configuration(provider_id, enabled=enabled)
    if configuration is None or configuration.kind not in STARTS:
        raise ApiError(404, "NOT_FOUND")
    return {"url": STARTS[configuration.kind](request, configuration, next_url, state)}


def _serialize_row(request: Request, provider_id: str) -> dict[str, Any]:
    configuration = selectors.find_configuration(provider_id, enabled=None)
    if configuration is None:
        raise ApiError(404, "NOT_FOUND")
    return serialize_provider(request, configuration, selectors.count_links().get(provider_id, 0))


def serialize_provider(request: Request, one: ProviderConfiguration, link_count: int) -> dict[str, Any]:
    """Return a provider as the API answers it, without its secret."""
    return {
        "id": one.id,
        "kind": one.kind,
        "name": one.name,
        "clientId": one.client_id,
        "hasSecret": bool(one.secret),
        "settings": dict(one.settings),
        "enabled": one.enabled,
        "readonly": one.readonly,
        "callbackUrl": make_callback_url(request._request, one.id),
        "logoutUrl": make_logout_url(request._request, one.id) if one.kind in OPENID_KINDS else None,
        "linkCount": link_count,
    }
