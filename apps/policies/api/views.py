"""Endpoints of the policy of sign-in and of the banner."""

from typing import Any

from rest_framework.permissions import AllowAny

from apps.accounts import access
from apps.common.api import APIView, Body, Data, Request, operation
from apps.common.errors import ApiError
from apps.common.texts import get_request_language
from apps.policies import services
from apps.policies.api import serializers as shapes
from apps.policies.enforcement import list_without_second_factor
from apps.policies.policy import Policy, get_fixed_values, get_policy, read_policy


class SignInPolicyView(APIView):
    @operation("getSignInPolicy", scope="identity:read", data=shapes.SignInPolicyItem)
    def get(self, request: Request) -> Data:
        """Return the rules for passwords, second factors, sessions and the banner (administrator)."""
        access.require_administrator(request.user)
        return serialize_policy(read_policy())

    @operation(
        "changeSignInPolicy", scope="identity:write", body=shapes.SignInPolicyRequest, data=shapes.SignInPolicyItem
    )
    def put(self, request: Request, body: Body) -> Data:
        """Replace these rules (administrator). Who lacks a second factor that is then required sets it up at the next
        request; nobody's session ends by it."""
        return serialize_policy(services.change_policy(request.user, **body))


class BannerView(APIView):
    """Serves the sign-in page, so it needs no sign-in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("getSignInBanner", scope="any", data=shapes.Banner, nullable=True)
    def get(self, request: Request) -> Data:
        """Return the text that people read before they sign in, in the request's language; null without one."""
        policy = get_policy()
        if not policy.has_banner:
            return None
        is_chinese = get_request_language() == "zh"
        return {
            "title": policy.banner_title_zh if is_chinese else policy.banner_title_en,
            "text": policy.banner_text_zh if is_chinese else policy.banner_text_en,
            "required": policy.banner_required,
            "version": policy.banner_version,
        }


class BannerAcceptView(APIView):
    @operation("acceptSignInBanner", scope="any", body=shapes.BannerAcceptRequest)
    def post(self, request: Request, body: Body) -> None:
        """Accept the banner in this session of a browser; recorded in the audit trail. 409 for another version."""
        if request.auth is not None:
            raise ApiError(409, "BANNER_FOR_SESSIONS")
        services.accept_banner(request.user, request._request.session, body["version"])


def serialize_policy(policy: Policy) -> dict[str, Any]:
    """Return the policy as the API answers it."""
    without = list_without_second_factor()
    values = {shown: getattr(policy, name) for name, shown in services.API_NAMES.items()}
    return {
        **values,
        "bannerVersion": policy.banner_version,
        "readonly": sorted(services.API_NAMES[name] for name in get_fixed_values()),
        "withoutSecondFactor": {
            "administrators": without.filter(is_superuser=True).count(),
            "everybody": without.count(),
        },
    }
