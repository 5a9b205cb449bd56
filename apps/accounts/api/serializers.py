"""Serializers of requests and answers about people and projects."""

from rest_framework import serializers

from apps.accounts.models import Role
from apps.common.pages import OrderingField, PageQuery


class ProjectItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)
    warm = serializers.BooleanField(help_text="its environments are, where they do not say otherwise")
    createdAt = serializers.DateTimeField()


class SignIn(serializers.Serializer):
    embedded = serializers.BooleanField(
        help_text="started with `make up`: on its machine, `fermi login-link` prints a one-time sign-in link"
    )


class MeToken(serializers.Serializer):
    id = serializers.CharField(help_text="as in the audit trail")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all")
    projects = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all of its user")
    tasks = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="null: all of its projects")


class Me(serializers.Serializer):
    username = serializers.CharField()
    email = serializers.CharField()
    isAdministrator = serializers.BooleanField()
    language = serializers.CharField(help_text="two letters, such as zh or en")
    projects = ProjectItem(many=True)
    token = MeToken(allow_null=True, help_text="the token of this request; null: signed in without one")


class SavedViewQuery(PageQuery):
    section = serializers.CharField(max_length=40, required=False)
    ordering = OrderingField("name", name="name")


class SavedViewRequest(serializers.Serializer):
    WHOLE = True

    section = serializers.RegexField(r"^[a-z][a-z-]*$", max_length=40, help_text="of the console, such as `training`")
    name = serializers.CharField(max_length=60)
    query = serializers.CharField(
        max_length=1000, allow_blank=True, help_text="filters, order and columns as the address has them"
    )


class SavedViewItem(SavedViewRequest):
    id = serializers.CharField()


class ProjectQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at")


class ProjectRequest(serializers.Serializer):
    WHOLE = True

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
    WHOLE = True

    role = serializers.ChoiceField(Role.choices)


class SecretQuery(PageQuery):
    ordering = OrderingField("name", name="name", createdAt="created_at", updatedAt="updated_at")


class SecretItem(serializers.Serializer):
    name = serializers.CharField()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_null=True)
    updatedAt = serializers.DateTimeField()
    updatedBy = serializers.CharField(allow_null=True)


class SecretRequest(serializers.Serializer):
    value = serializers.CharField(
        max_length=32_000, trim_whitespace=False, write_only=True, help_text="never given back"
    )
