"""Feishu, and Lark, its service outside of China.

Written after the pages of open.feishu.cn: `common-capabilities/sso/api/obtain-oauth-code` (the address of the sign-in,
PKCE), `authentication-management/access-token/get-user-access-token` (the code, RFC 6749 with a number `code`),
`authen-v1/user_info/get` (`union_id`, `tenant_key`), `auth-v3/auth/tenant_access_token_internal`,
`contact-v3/user/get` (departments) and `contact-v3/group/member_belong` (user groups).

People are known by `union_id`, which is the same in all applications of one developer; `open_id` is another one in each
application, and `user_id` needs a permission of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from allauth.socialaccount.models import SocialApp

from apps.identity.errors import SignInError
from apps.identity.vendors.calls import call_api, require_object, require_success, require_text
from apps.identity.vendors.person import VendorPerson, list_groups, make_id

MAX_GROUP_PAGES = 5


@dataclass(frozen=True)
class Feishu:
    sign_in_url: str
    api_url: str
    tenant_setting: str = "tenant_key"
    has_pkce: bool = True

    def build_sign_in_url(self, app: SocialApp, callback_url: str, state: str, challenge: Mapping[str, str]) -> str:
        values = {"client_id": app.client_id, "response_type": "code", "redirect_uri": callback_url, "state": state}
        return f"{app.settings.get('authorize_url') or self.sign_in_url}?{urlencode({**values, **challenge})}"

    def fetch_person(self, app: SocialApp, code: str, callback_url: str, verifier: str) -> VendorPerson:
        body = {
            "grant_type": "authorization_code",
            "client_id": app.client_id,
            "client_secret": app.secret,
            "code": code,
            "redirect_uri": callback_url,
            "code_verifier": verifier,
        }
        answer = call_api("POST", self._make_url(app, "authen/v2/oauth/token"), json=body)
        require_success(answer, "code", "IDENTITY_CODE_REFUSED", "error", "error_description")
        headers = {"Authorization": f"Bearer {require_text(answer, 'access_token')}"}
        answer = call_api("GET", self._make_url(app, "authen/v1/user_info"), headers=headers)
        require_success(answer, "code", "IDENTITY_CODE_REFUSED", "msg")
        info = require_object(answer, "data")
        uid, tenant = make_id(info.get("union_id")), make_id(info.get("tenant_key"))
        wanted = app.settings.get("fetch_groups") and uid and tenant == app.settings[self.tenant_setting]
        return VendorPerson(
            uid=uid,
            tenant=tenant,
            name=make_id(info.get("name")),
            username=_choose_username(info),
            groups=self._fetch_groups(app, uid) if wanted else None,
            ids={key: make_id(info.get(key)) for key in ("open_id", "user_id") if make_id(info.get(key))},
        )

    def _fetch_groups(self, app: SocialApp, uid: str) -> tuple[str, ...]:
        """Return the departments and user groups of a person, which the application reads by its own token."""
        body = {"app_id": app.client_id, "app_secret": app.secret}
        answer = call_api("POST", self._make_url(app, "auth/v3/tenant_access_token/internal"), json=body)
        require_success(answer, "code", "IDENTITY_GROUPS", "msg")
        headers = {"Authorization": f"Bearer {require_text(answer, 'tenant_access_token')}"}
        url = self._make_url(app, f"contact/v3/users/{quote(uid, safe='')}")
        answer = call_api("GET", url, headers=headers, params={"user_id_type": "union_id"})
        require_success(answer, "code", "IDENTITY_GROUPS", "msg")
        user = require_object(require_object(answer, "data"), "user")
        status = user.get("status")
        if isinstance(status, dict) and any(
            status.get(key) is True for key in ("is_frozen", "is_resigned", "is_exited")
        ):
            raise SignInError("IDENTITY_USER_INACTIVE")
        found = list_groups("department", user.get("department_ids"))
        params = {"member_id": uid, "member_id_type": "union_id", "page_size": "500"}
        url = self._make_url(app, "contact/v3/group/member_belong")
        for _ in range(MAX_GROUP_PAGES):
            answer = call_api("GET", url, headers=headers, params=params)
            require_success(answer, "code", "IDENTITY_GROUPS", "msg")
            page = require_object(answer, "data")
            found += list_groups("group", page.get("group_list"))
            if page.get("has_more") is not True:
                return tuple(found)
            params["page_token"] = require_text(page, "page_token")
        raise SignInError("IDENTITY_GROUPS", f"more than {MAX_GROUP_PAGES} pages of groups")

    def _make_url(self, app: SocialApp, path: str) -> str:
        return f"{(app.settings.get('server_url') or self.api_url).rstrip('/')}/open-apis/{path}"


def _choose_username(info: Mapping[str, Any]) -> str:
    """Return what an account is named by: part of an address that the organisation entered, which opens no account."""
    for key in ("enterprise_email", "email"):
        if name := make_id(info.get(key)).partition("@")[0]:
            return name
    return make_id(info.get("en_name")) or make_id(info.get("name"))


FEISHU = Feishu("https://accounts.feishu.cn/open-apis/authen/v1/authorize", "https://open.feishu.cn")
LARK = Feishu("https://accounts.larksuite.com/open-apis/authen/v1/authorize", "https://open.larksuite.com")
