"""Serializers of requests and answers about programs' access."""

from rest_framework import serializers

from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery
from apps.oauth.services.grants import DEFAULT_DAYS, MAX_DAYS
from apps.oauth.services.requests import MAX_QUERY_LENGTH, MAX_SCOPES

MAX_PROJECTS = 500
MAX_CODE_LENGTH = 20


class AuthorizationDescribeRequest(serializers.Serializer):
    query = serializers.CharField(
        max_length=MAX_QUERY_LENGTH, help_text="query string with which the program opened the page"
    )


class DeviceDescribeRequest(serializers.Serializer):
    code = serializers.CharField(max_length=MAX_CODE_LENGTH, help_text="that the device shows")


class AccessRequested(serializers.Serializer):
    client = serializers.CharField(help_text="the program's name, which it gave itself")
    firstParty = serializers.BooleanField(help_text="it is a part of the platform")
    redirectHost = serializers.CharField(help_text="where the answer goes; empty for a device")
    scopes = serializers.ListField(
        child=serializers.CharField(), help_text="that you may grant; `all`: everything that you may do"
    )
    user = serializers.CharField(help_text="as whom you are signed in")
    days = serializers.IntegerField(help_text="how long access lasts unless you choose otherwise")
    maxDays = serializers.IntegerField()


class _Decision(serializers.Serializer):
    approve = serializers.BooleanField()
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=MAX_SCOPES, default=list, help_text="what you grant"
    )
    projects = serializers.ListField(
        child=KeyField(),
        max_length=MAX_PROJECTS,
        allow_null=True,
        default=None,
        help_text="in which of your projects; null: in all, also in those that you join later",
    )
    days = serializers.IntegerField(min_value=1, max_value=MAX_DAYS, default=DEFAULT_DAYS)


class AuthorizationDecideRequest(AuthorizationDescribeRequest, _Decision):
    pass


class DeviceDecideRequest(DeviceDescribeRequest, _Decision):
    pass


class AuthorizationDecided(serializers.Serializer):
    redirect = serializers.CharField(help_text="where the browser has to go")


class DeviceDecided(serializers.Serializer):
    approved = serializers.BooleanField()


class GrantQuery(PageQuery):
    ordering = OrderingField("-createdAt", client="client__name", createdAt="created_at", expiresAt="expires_at")


class GrantItem(serializers.Serializer):
    id = serializers.CharField()
    client = serializers.CharField(help_text="the program's name")
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all")
    projects = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all")
    createdAt = serializers.DateTimeField()
    refreshedAt = serializers.DateTimeField(allow_null=True, help_text="when it last got a token")
    lastUsedAt = serializers.DateTimeField(allow_null=True, help_text="of its present token")
    lastUsedFrom = serializers.CharField(help_text="the address of that; empty without one")
    expiresAt = serializers.DateTimeField()
