"""Endpoints of the pages on which people grant programs access. Only the console's session calls those that grant: a
token could otherwise give itself more than it has."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from apps.accounts.api.authentication import CookieAuthentication
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.oauth.api import serializers as shapes
from apps.oauth.services import clients, devices, grants, requests


class AuthorizationsView(APIView):
    authentication_classes = (CookieAuthentication,)

    @operation(
        "decideAuthorization",
        scope="tokens:write",
        body=shapes.AuthorizationDecideRequest,
        data=shapes.AuthorizationDecided,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Grant a program the access that it requests, or a part of it, or deny it (console only)."""
        asked = requests.read_access_request(body.pop("query"))
        if not body.pop("approve"):
            return {"redirect": requests.deny_access(request.user, asked)}
        return {"redirect": requests.grant_access(request.user, asked, **body)}


class AuthorizationDescriptionView(APIView):
    authentication_classes = (CookieAuthentication,)

    @operation(
        "describeAuthorization",
        scope="tokens:write",
        body=shapes.AuthorizationDescribeRequest,
        data=shapes.AccessRequested,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return which program requests access, and to what (console only). 400 where the request is not valid."""
        asked = requests.read_access_request(body["query"])
        return _describe(request.user, asked.client, asked.scopes, urlsplit(asked.redirect).netloc)


class DevicesView(APIView):
    authentication_classes = (CookieAuthentication,)

    @operation("decideDevice", scope="tokens:write", body=shapes.DeviceDecideRequest, data=shapes.DeviceDecided)
    def post(self, request: Request, body: Body) -> Data:
        """Grant the device that shows a code the access that it requests, or a part of it, or deny it (console
        only)."""
        asked = devices.read_device_request(request.user, body.pop("code"))
        approve = body.pop("approve")
        if approve:
            devices.grant_device(request.user, asked, **body)
        else:
            devices.deny_device(request.user, asked)
        return {"approved": approve}


class DeviceDescriptionView(APIView):
    authentication_classes = (CookieAuthentication,)

    @operation("describeDevice", scope="tokens:write", body=shapes.DeviceDescribeRequest, data=shapes.AccessRequested)
    def post(self, request: Request, body: Body) -> Data:
        """Return which program on a device requests access, and to what (console only). 404 for an unknown code."""
        asked = devices.read_device_request(request.user, body["code"])
        return _describe(request.user, asked.client, asked.scopes, "")


class GrantsView(APIView):
    @operation("listGrants", scope="tokens:read", query=shapes.GrantQuery, page=shapes.GrantItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the programs to which you have granted access."""
        rows = grants.list_grants(request.user).filter(client__name__icontains=query["search"])
        return paginate_rows(rows, query, lambda row: {**row, "client": row.pop("client_")})


class GrantView(APIView):
    @operation("endGrant", scope="tokens:write")
    def delete(self, request: Request, grant_id: str) -> None:
        """End a program's access: its tokens are refused from now on."""
        grants.end_grant(request.user, grant_id)


def _describe(user: Any, client: Any, scopes: list[str], host: str) -> Mapping[str, Any]:
    return {
        "client": client.name,
        "firstParty": client.pk == clients.CLI_CLIENT,
        "redirectHost": host,
        "scopes": grants.list_offers(user, scopes),
        "user": user.username,
        "days": grants.DEFAULT_DAYS,
        "maxDays": grants.MAX_DAYS,
    }
