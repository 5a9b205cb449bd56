"""Endpoints of API tokens: a user's own, those of a project, and all."""

from typing import Any

from django.db.models import Q, QuerySet
from rest_framework import serializers

from apps.accounts import access, tokens
from apps.accounts.models import ApiToken
from apps.accounts.scopes import SCOPES
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.bounds import MAX_TOKENS
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery

MAX_SCOPES = len(SCOPES)
MAX_PROJECTS = 50
MAX_TASKS = 100
MAX_DAYS = 3650


class TokenQuery(PageQuery):
    ordering = OrderingField(
        "-createdAt", name="name", createdAt="created", expiresAt="expiry", lastUsedAt="last_used_at"
    )


class TokenLimits(serializers.Serializer):
    """What narrows a token's rights; null: nothing."""

    scopes = serializers.ListField(
        child=serializers.CharField(max_length=40),
        max_length=MAX_SCOPES,
        allow_null=True,
        required=False,
        help_text="operations that it may call, such as `tasks:read`; null: all",
    )
    projects = serializers.ListField(
        child=KeyField(),
        min_length=1,
        max_length=MAX_PROJECTS,
        allow_null=True,
        required=False,
        help_text="the only projects that exist for it; null: all of its user's",
    )
    tasks = serializers.ListField(
        child=KeyField(),
        min_length=1,
        max_length=MAX_TASKS,
        allow_null=True,
        required=False,
        help_text="the only tasks that it may be used for, and then for nothing else; null: not limited",
    )


class TokenCreateRequest(TokenLimits):
    name = serializers.CharField(max_length=100)
    expiresInDays = serializers.IntegerField(
        source="expires_in_days", min_value=1, max_value=MAX_DAYS, required=False, help_text="missing: it does not end"
    )


class TokenItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    createdAt = serializers.DateTimeField()
    expiresAt = serializers.DateTimeField(allow_null=True)
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all")
    projects = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all")
    tasks = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: not limited")
    lastUsedAt = serializers.DateTimeField(allow_null=True, help_text="to the minute")
    lastUsedFrom = serializers.CharField(help_text="address; empty where it was never used")


class TokenCreated(TokenItem):
    token = serializers.CharField(help_text="shown this once")


class OwnedTokenItem(TokenItem):
    username = serializers.CharField(help_text="whose token it is")


class TokensRevokeRequest(serializers.Serializer):
    ids = serializers.ListField(
        child=KeyField(), max_length=MAX_TOKENS, allow_null=True, help_text="null: all of your tokens"
    )


class TokensRevoked(serializers.Serializer):
    count = serializers.IntegerField(help_text="tokens that were revoked")


class TokensView(APIView):
    @operation("listTokens", scope="tokens:read", query=TokenQuery, page=TokenItem)
    def get(self, request: Request, query: Query) -> Data:
        """List your own tokens, without their values. To a token of projects, those that are limited to these."""
        rows = tokens.list_tokens(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, _leave_out_user)

    @operation("createToken", scope="tokens:write", body=TokenCreateRequest, data=TokenCreated, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Create a token with your rights, or with some of them. The answer is the only one that contains its value.
        403 for rights that the token in use does not have, 409 where you have too many."""
        return tokens.create_token(request.user, **body)


class TokensRevokeView(APIView):
    @operation("revokeTokens", scope="tokens:write", body=TokensRevokeRequest, data=TokensRevoked)
    def post(self, request: Request, body: Body) -> Data:
        """Revoke several of your tokens, or all: also the one that this request comes with."""
        return {"count": tokens.revoke_tokens(request.user, body["ids"])}


class TokenView(APIView):
    @operation("revokeToken", scope="tokens:write")
    def delete(self, request: Request, token_id: str) -> None:
        """Revoke one of your tokens: it is refused from now on, by all processes."""
        tokens.revoke_token(request.user, token_id)


class AllTokensView(APIView):
    @operation("listAllTokens", scope="tokens:read", query=TokenQuery, page=OwnedTokenItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the tokens of all users (administrator), without their values; `search` is part of the token's name or
        of its user's."""
        return paginate_rows(_search(tokens.list_all_tokens(request.user), query), query)


class AnyTokenView(APIView):
    @operation("revokeAnyToken", scope="tokens:write")
    def delete(self, request: Request, token_id: str) -> None:
        """Revoke the token of any user (administrator)."""
        tokens.revoke_token_by_id(request.user, token_id)


class ProjectTokensView(APIView):
    @operation("listProjectTokens", scope="tokens:read", query=TokenQuery, page=OwnedTokenItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the tokens that are limited to this project alone, and those of its service accounts (maintainer)."""
        project = access.get_project(request.user, project_id)
        return paginate_rows(_search(tokens.list_project_tokens(request.user, project), query), query)


class ProjectTokenView(APIView):
    @operation("revokeProjectToken", scope="tokens:write")
    def delete(self, request: Request, project_id: str, token_id: str) -> None:
        """Revoke a token of the project's list, whoever's it is (maintainer)."""
        tokens.revoke_project_token(request.user, access.get_project(request.user, project_id), token_id)


def _search(rows: QuerySet[ApiToken, Any], query: Query) -> QuerySet[ApiToken, Any]:
    word = query["search"]
    return rows.filter(Q(name__icontains=word) | Q(user__username__icontains=word)) if word else rows


def _leave_out_user(row: dict) -> dict:
    return {key: value for key, value in row.items() if key != "username"}
