"""Endpoints of the exchange of pipelines' ID tokens, and of the rules by which it happens."""

from typing import IO, Any
from urllib.parse import parse_qsl

from django.conf import settings
from django.db.models import Q
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission

from apps.accounts import access
from apps.accounts.api.tokens import MAX_SCOPES
from apps.common import rate_limits, request_id
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.pages import OrderingField, PageQuery
from apps.common.renderers import JSONParser, read_body
from apps.identity.exchange import exchange, issuers, rules
from apps.identity.exchange.conditions import MAX_CONDITIONS, MAX_PATTERN_LENGTH
from apps.identity.exchange.models import Rule

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKENS = ("urn:ietf:params:oauth:token-type:id_token", "urn:ietf:params:oauth:token-type:jwt")
MAX_ID_TOKEN_LENGTH = 48_000
MAX_FORM_FIELDS = 20


class TokenExchangeRequest(serializers.Serializer):
    """The parameters of RFC 8693, section 2.1, and whose token it shall be."""

    grant_type = serializers.ChoiceField([GRANT_TYPE], required=False, help_text="of RFC 8693, which has no other")
    subject_token = serializers.CharField(
        max_length=MAX_ID_TOKEN_LENGTH, write_only=True, help_text="the pipeline's ID token"
    )
    subject_token_type = serializers.ChoiceField(ID_TOKENS, required=False)
    requested_token_type = serializers.ChoiceField([ACCESS_TOKEN], required=False)
    service_account = serializers.CharField(max_length=150, help_text="its username, such as `ci@project-3f2a`")
    scope = serializers.CharField(
        max_length=2_000, required=False, help_text="fewer scopes than the rule gives, separated by spaces"
    )


class TokenExchanged(serializers.Serializer):
    """The answer of RFC 8693, section 2.2.1."""

    access_token = serializers.CharField(help_text="the API token; shown this once")
    issued_token_type = serializers.CharField()
    token_type = serializers.CharField(help_text="Bearer")
    expires_in = serializers.IntegerField(help_text="seconds")
    scope = serializers.CharField(help_text="separated by spaces")


class ExchangeIssuers(serializers.Serializer):
    issuers = serializers.ListField(child=serializers.CharField(), help_text="that the operator allows")


class ExchangeRuleQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at", lastUsedAt="last_used_at")


class ExchangeRuleChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=60)
    issuer = serializers.CharField(max_length=200, help_text="`iss` of the ID tokens, exactly")
    audience = serializers.CharField(max_length=200, help_text="`aud` of the ID tokens: this platform's address")
    conditions = serializers.DictField(
        child=serializers.CharField(max_length=MAX_PATTERN_LENGTH),
        help_text=f"by claim: its value, or the beginning with `*` behind it; at most {MAX_CONDITIONS}",
    )
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=40),
        min_length=1,
        max_length=MAX_SCOPES,
        help_text="operations that the tokens may call, such as `tasks:write`",
    )
    minutes = serializers.IntegerField(min_value=1, max_value=rules.MAX_MINUTES, help_text="how long a token is valid")
    enabled = serializers.BooleanField(required=False, help_text="true by default")


class ExchangeRuleRequest(ExchangeRuleChangeRequest):
    serviceAccount = serializers.CharField(source="service_account", max_length=40, help_text="its name; never changes")


class ExchangeRuleItem(serializers.Serializer):
    id = serializers.CharField()
    serviceAccount = serializers.CharField()
    username = serializers.CharField(help_text="what a pipeline sends as `service_account`")
    name = serializers.CharField()
    issuer = serializers.CharField()
    audience = serializers.CharField()
    conditions = serializers.DictField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    minutes = serializers.IntegerField()
    enabled = serializers.BooleanField()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_null=True)
    lastUsedAt = serializers.DateTimeField(allow_null=True)


class WithinExchangeLimit(BasePermission):
    """Counts each exchange against a limit of the address that it comes from."""

    def has_permission(self, request: Any, view: Any) -> bool:
        """Return True. Raises ApiError 429 RATE_LIMITED."""
        address = request_id.get_client_address() or "unknown"
        state = rate_limits.count_request("exchange", address, settings.RATE_LIMIT_ANONYMOUS)
        request._request.rate_state = state
        if state and not state.allowed:
            raise ApiError(429, "RATE_LIMITED", seconds=state.retry_after, limit=state.limit)
        return True


class FormParser(BaseParser):
    """Parses a form, as clients of RFC 8693 send it."""

    media_type = "application/x-www-form-urlencoded"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        body = read_body(stream, parser_context["request"])
        try:
            return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
        except ValueError as error:
            raise ApiError(400, "BODY_NOT_OBJECT") from error


class TokenExchangeView(APIView):
    """Serves pipelines, which have nothing but their ID token."""

    authentication_classes = ()
    permission_classes = (WithinExchangeLimit,)
    parser_classes = (JSONParser, FormParser)

    @operation("exchangeToken", scope="any", body=TokenExchangeRequest, data=TokenExchanged)
    def post(self, request: Request, body: Body) -> Data:
        """Exchange a pipeline's ID token for an API token of minutes, which a service account's rule allows. A form is
        accepted as well as JSON. 400 for an ID token that is not valid, 403 for one that no rule of the service account
        accepts."""
        scopes = body["scope"].split() if "scope" in body else None
        made = exchange.exchange_token(body["subject_token"], body["service_account"], scopes)
        return {
            "access_token": made["token"],
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": made["expires_in"],
            "scope": " ".join(made["scopes"]),
        }


class ExchangeIssuersView(APIView):
    @operation("listExchangeIssuers", scope="tokens:read", data=ExchangeIssuers)
    def get(self, request: Request) -> Data:
        """Return whose ID tokens the operator allows in exchange rules."""
        return {"issuers": issuers.list_issuers()}


class ExchangeRulesView(APIView):
    @operation("listExchangeRules", scope="tokens:read", query=ExchangeRuleQuery, page=ExchangeRuleItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the rules by which pipelines get tokens of the project's service accounts (maintainer)."""
        rows = rules.list_rules(request.user, access.get_project(request.user, project_id))
        if word := query["search"]:
            rows = rows.filter(Q(name__icontains=word) | Q(membership__user__username__icontains=word))
        return paginate_rows(rows, query, serialize_rule)

    @operation("createExchangeRule", scope="tokens:write", body=ExchangeRuleRequest, data=ExchangeRuleItem, status=201)
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Let pipelines get tokens of a service account (maintainer, not with a narrow token)."""
        account = body.pop("service_account")
        project = access.get_project(request.user, project_id)
        return serialize_rule(rules.create_rule(request.user, project, account, body))


class ExchangeRuleView(APIView):
    @operation(
        "changeExchangeRule",
        scope="tokens:write",
        body=ExchangeRuleChangeRequest,
        partial=True,
        data=ExchangeRuleItem,
    )
    def patch(self, request: Request, project_id: str, rule_id: str, body: Body) -> Data:
        """Change a rule (maintainer, not with a narrow token). Tokens that pipelines have stay as they are."""
        project = access.get_project(request.user, project_id)
        return serialize_rule(rules.change_rule(request.user, project, rule_id, body))

    @operation("deleteExchangeRule", scope="tokens:write")
    def delete(self, request: Request, project_id: str, rule_id: str) -> None:
        """Delete a rule (maintainer). Tokens that pipelines have end by themselves, within the hour."""
        rules.delete_rule(request.user, access.get_project(request.user, project_id), rule_id)


def serialize_rule(row: Rule) -> dict[str, Any]:
    """Return a rule as the API answers it."""
    account = row.membership.user
    return {
        "id": row.pk,
        "serviceAccount": account.first_name,
        "username": account.username,
        "name": row.name,
        "issuer": row.issuer,
        "audience": row.audience,
        "conditions": row.conditions,
        "scopes": row.scopes,
        "minutes": row.minutes,
        "enabled": row.enabled,
        "createdAt": row.created_at,
        "createdBy": row.created_by.username if row.created_by else None,
        "lastUsedAt": row.last_used_at,
    }
