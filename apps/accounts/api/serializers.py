"""Shapes of requests and answers about people, projects and tokens."""

from rest_framework import serializers

from apps.accounts.models import Role
from apps.common.pages import OrderingField, PageQuery


class ProjectItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)
    createdAt = serializers.DateTimeField()


class Me(serializers.Serializer):
    username = serializers.CharField()
    email = serializers.CharField()
    isAdministrator = serializers.BooleanField()
    language = serializers.CharField(help_text="zh or en")
    projects = ProjectItem(many=True)


class TokenQuery(PageQuery):
    ordering = OrderingField("-createdAt", name="name", createdAt="created", expiresAt="expiry")


class TokenItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    createdAt = serializers.DateTimeField()
    expiresAt = serializers.DateTimeField(allow_null=True)


class TokenCreateRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    expiresInDays = serializers.IntegerField(source="expires_in_days", min_value=1, max_value=3650, required=False)


class TokenCreated(TokenItem):
    token = serializers.CharField(help_text="shown this once")


class ProjectQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at")


class ProjectRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)


class MemberQuery(PageQuery):
    ordering = OrderingField("username", username="user__username", role="role")


class MemberItem(serializers.Serializer):
    username = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)


class MemberAddRequest(serializers.Serializer):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(Role.choices, default=Role.MEMBER)


class MemberChangeRequest(serializers.Serializer):
    role = serializers.ChoiceField(Role.choices)


class AuditQuery(PageQuery):
    project = serializers.CharField(required=False)
    ordering = OrderingField("-at", at="at")


class AuditEventItem(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(allow_null=True)
    project = serializers.CharField(allow_null=True)
    action = serializers.CharField()
    target = serializers.CharField()
    data = serializers.DictField()  # type: ignore[assignment]
    requestId = serializers.CharField()
