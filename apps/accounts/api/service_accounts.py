"""Endpoints of a project's service accounts."""

from rest_framework import serializers

from apps.accounts import access, service_accounts
from apps.accounts.api.tokens import MAX_DAYS, MAX_SCOPES, TokenCreated
from apps.accounts.models import Role
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.pages import OrderingField, PageQuery


class ServiceAccountQuery(PageQuery):
    ordering = OrderingField("name", name="first_name", createdAt="date_joined")


class ServiceAccountRequest(serializers.Serializer):
    name = serializers.RegexField(
        r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\Z", max_length=40, help_text="lower-case letters, digits and hyphens"
    )
    role = serializers.ChoiceField(Role.choices, default=Role.MEMBER)


class ServiceAccountChange(serializers.Serializer):
    WHOLE = True

    role = serializers.ChoiceField(Role.choices)


class ServiceAccountItem(serializers.Serializer):
    name = serializers.CharField()
    username = serializers.CharField(help_text="in tasks, lists of members and the audit trail")
    role = serializers.ChoiceField(Role.choices)
    createdAt = serializers.DateTimeField()
    tokens = serializers.IntegerField(help_text="how many it has")


class ServiceAccountTokenRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    expiresInDays = serializers.IntegerField(
        source="expires_in_days", min_value=1, max_value=MAX_DAYS, required=False, help_text="missing: it does not end"
    )
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=40),
        max_length=MAX_SCOPES,
        allow_null=True,
        required=False,
        help_text="operations that it may call, such as `tasks:read`; null: all of the account's role",
    )


class ServiceAccountsView(APIView):
    @operation("listServiceAccounts", scope="projects:read", query=ServiceAccountQuery, page=ServiceAccountItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the project's service accounts (maintainer)."""
        rows = service_accounts.list_accounts(request.user, access.get_project(request.user, project_id))
        return paginate_rows(rows.filter(first_name__icontains=query["search"]), query)

    @operation(
        "createServiceAccount",
        scope="projects:write",
        body=ServiceAccountRequest,
        data=ServiceAccountItem,
        status=201,
    )
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Create a service account, which acts by tokens alone (maintainer). The name of a deleted one enables that
        account again, without its tokens. 409 where the name is taken."""
        return service_accounts.create_account(request.user, access.get_project(request.user, project_id), **body)


class ServiceAccountView(APIView):
    @operation("changeServiceAccount", scope="projects:write", body=ServiceAccountChange)
    def patch(self, request: Request, project_id: str, name: str, body: Body) -> None:
        """Change a service account's role (maintainer)."""
        service_accounts.change_account(request.user, access.get_project(request.user, project_id), name, **body)

    @operation("deleteServiceAccount", scope="projects:write")
    def delete(self, request: Request, project_id: str, name: str) -> None:
        """Delete a service account and revoke its tokens (maintainer). Its tasks go on and stay in the project."""
        service_accounts.delete_account(request.user, access.get_project(request.user, project_id), name)


class ServiceAccountTokensView(APIView):
    @operation(
        "createServiceAccountToken",
        scope="tokens:write",
        body=ServiceAccountTokenRequest,
        data=TokenCreated,
        status=201,
    )
    def post(self, request: Request, project_id: str, name: str, body: Body) -> Data:
        """Create a token for a service account, limited to the project (maintainer). The answer is the only one that
        contains its value; the project's tokens are listed and revoked below `tokens`."""
        return service_accounts.create_account_token(
            request.user,
            access.get_project(request.user, project_id),
            name,
            body["name"],
            body.get("expires_in_days"),
            body.get("scopes"),
        )
