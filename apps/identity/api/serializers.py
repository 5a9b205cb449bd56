"""Requests and answers about providers."""

from rest_framework import serializers

from apps.common.pages import PageQuery
from apps.identity.models import ID_PATTERN, MAX_ID_LENGTH
from apps.identity.starts import STARTS

KINDS = [(str(one), str(one)) for one in STARTS]


class SignInStartRequest(serializers.Serializer):
    next = serializers.CharField(
        max_length=2_000, required=False, help_text="path of the console where the person goes afterwards; / otherwise"
    )


class SignInStart(serializers.Serializer):
    url = serializers.CharField(help_text="where the browser goes now")


class SignedOut(serializers.Serializer):
    url = serializers.CharField(allow_null=True, help_text="where the browser goes now, to sign out there")


class SignInProvider(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField(help_text="what its button says")
    kind = serializers.ChoiceField(KINDS)


class SignInProvidersQuery(serializers.Serializer):
    error = serializers.CharField(
        max_length=60, required=False, help_text="of the address that a refused sign-in returned to"
    )


class SignInRefusal(serializers.Serializer):
    error = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class SignInProviders(serializers.Serializer):
    localAccounts = serializers.BooleanField(help_text="false: passwords are refused")
    providers = SignInProvider(many=True)
    refusal = SignInRefusal(allow_null=True, help_text="the text of `error`; null without one")


class IdentityProviderQuery(PageQuery):
    pass


class IdentityProviderChangeRequest(serializers.Serializer):
    name = serializers.CharField(max_length=40)
    clientId = serializers.CharField(source="client_id", max_length=191)
    secret = serializers.CharField(
        max_length=2_000, required=False, allow_blank=True, help_text="never shown again; without one it stays"
    )
    settings = serializers.DictField(
        child=serializers.JSONField(allow_null=True), help_text="docs/sign-in.md lists them: server_url, scopes, …"
    )
    enabled = serializers.BooleanField(required=False, help_text="whether people may sign in by it; true by default")


class IdentityProviderCreateRequest(IdentityProviderChangeRequest):
    id = serializers.RegexField(
        rf"\A{ID_PATTERN}\Z",
        source="provider_id",
        max_length=MAX_ID_LENGTH,
        help_text="part of the callback address; never changes",
    )
    kind = serializers.ChoiceField(KINDS)


class IdentityProviderItem(serializers.Serializer):
    id = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    name = serializers.CharField()
    clientId = serializers.CharField()
    hasSecret = serializers.BooleanField()
    settings = serializers.JSONField()
    enabled = serializers.BooleanField()
    readonly = serializers.BooleanField(help_text="true: it comes from the platform's environment")
    callbackUrl = serializers.CharField(help_text="to be entered at the provider")
    logoutUrl = serializers.CharField(
        allow_null=True, help_text="to be entered at the provider for back-channel logout; null where there is none"
    )
    linkCount = serializers.IntegerField(help_text="accounts that people sign in to by it")


class IdentityProviderLinkRequest(serializers.Serializer):
    username = serializers.CharField(max_length=150)
    uid = serializers.CharField(max_length=191, help_text="what the provider knows the person by: its `sub`")


class IdentityProviderLink(serializers.Serializer):
    username = serializers.CharField()
    uid = serializers.CharField()


class IdentityProviderLinksDeleted(serializers.Serializer):
    deleted = serializers.IntegerField(help_text="how many accounts were linked")
