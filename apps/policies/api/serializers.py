"""Requests and answers about the policy of sign-in."""

from rest_framework import serializers

from apps.policies.models import MAX_TEXT_LENGTH, MAX_TITLE_LENGTH, SecondFactorRule


def _make_text(source: str, max_length: int) -> serializers.CharField:
    return serializers.CharField(source=source, allow_blank=True, max_length=max_length)


class SignInPolicyRequest(serializers.Serializer):
    WHOLE = True

    passwordLength = serializers.IntegerField(
        source="password_length", min_value=8, max_value=64, help_text="characters that new passwords need"
    )
    secondFactor = serializers.ChoiceField(
        SecondFactorRule.choices, source="second_factor", help_text="whose accounts with a password need one"
    )
    tokensExempt = serializers.BooleanField(
        source="tokens_exempt", help_text="tokens of people who lack a required second factor work on"
    )
    sessionHours = serializers.IntegerField(
        source="session_hours", min_value=0, max_value=8760, help_text="after which a session ends; 0: two weeks unused"
    )
    idleMinutes = serializers.IntegerField(
        source="idle_minutes", min_value=0, max_value=43_200, help_text="without a request until it ends; 0: no limit"
    )
    bannerTitleEn = _make_text("banner_title_en", MAX_TITLE_LENGTH)
    bannerTitleZh = _make_text("banner_title_zh", MAX_TITLE_LENGTH)
    bannerTextEn = _make_text("banner_text_en", MAX_TEXT_LENGTH)
    bannerTextZh = _make_text("banner_text_zh", MAX_TEXT_LENGTH)
    bannerRequired = serializers.BooleanField(source="banner_required", help_text="it is accepted in each session")


class WithoutSecondFactor(serializers.Serializer):
    administrators = serializers.IntegerField()
    everybody = serializers.IntegerField()


class SignInPolicyItem(serializers.Serializer):
    passwordLength = serializers.IntegerField()
    secondFactor = serializers.ChoiceField(SecondFactorRule.choices)
    tokensExempt = serializers.BooleanField()
    sessionHours = serializers.IntegerField()
    idleMinutes = serializers.IntegerField()
    bannerTitleEn = serializers.CharField()
    bannerTitleZh = serializers.CharField()
    bannerTextEn = serializers.CharField()
    bannerTextZh = serializers.CharField()
    bannerRequired = serializers.BooleanField()
    bannerVersion = serializers.IntegerField()
    readonly = serializers.ListField(
        child=serializers.CharField(), help_text="fields that the platform's environment sets"
    )
    withoutSecondFactor = WithoutSecondFactor(help_text="active accounts with a password that have none")


class Banner(serializers.Serializer):
    title = serializers.CharField()
    text = serializers.CharField(help_text="plain text with line ends")
    required = serializers.BooleanField(  # type: ignore[assignment]
        help_text="people accept it in each session, or can do nothing"
    )
    version = serializers.IntegerField()


class BannerAcceptRequest(serializers.Serializer):
    version = serializers.IntegerField(min_value=0, max_value=2**31 - 1)
