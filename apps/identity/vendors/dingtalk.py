"""DingTalk.

Written after the pages of open.dingtalk.com: `obtain-identity-credentials` (the sign-in, which returns `authCode`),
`obtain-user-token` (`corpId` of the organisation that the person chose, with the scope `corpid`),
`dingtalk-retrieve-user-information` (`unionId`), `obtain-the-access_token-of-an-internal-app`,
`query-a-user-by-the-union-id` and `query-user-details` (departments, roles).

Paths of `/v1.0` answer failures with HTTP 400 and a text `code`, those of `/topapi` with HTTP 200 and `errcode`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from allauth.socialaccount.models import SocialApp

from apps.identity.errors import SignInError
from apps.identity.vendors.calls import call_api, require_object, require_success, require_text
from apps.identity.vendors.person import VendorPerson, list_groups, make_id


@dataclass(frozen=True)
class DingTalk:
    sign_in_url: str = "https://login.dingtalk.com/oauth2/auth"
    api_url: str = "https://api.dingtalk.com"
    directory_url: str = "https://oapi.dingtalk.com"
    tenant_setting: str = "corp_id"
    has_pkce: bool = False

    def build_sign_in_url(self, app: SocialApp, callback_url: str, state: str, challenge: Mapping[str, str]) -> str:
        values = {
            "client_id": app.client_id,
            "response_type": "code",
            "redirect_uri": callback_url,
            "state": state,
            "scope": "openid corpid",
            "prompt": "consent",
        }
        return f"{app.settings.get('authorize_url') or self.sign_in_url}?{urlencode(values)}"

    def fetch_person(self, app: SocialApp, code: str, callback_url: str, verifier: str) -> VendorPerson:
        body = {
            "clientId": app.client_id,
            "clientSecret": app.secret,
            "code": code,
            "grantType": "authorization_code",
        }
        answer = call_api("POST", self._make_url(app, "/v1.0/oauth2/userAccessToken"), json=body)
        _require_no_code(answer, "IDENTITY_CODE_REFUSED")
        tenant = make_id(answer.get("corpId"))
        headers = {"x-acs-dingtalk-access-token": require_text(answer, "accessToken")}
        info = call_api("GET", self._make_url(app, "/v1.0/contact/users/me"), headers=headers)
        _require_no_code(info, "IDENTITY_CODE_REFUSED")
        uid = make_id(info.get("unionId"))
        wanted = app.settings.get("fetch_groups") and uid and tenant == app.settings[self.tenant_setting]
        user_id, groups = self._fetch_groups(app, uid) if wanted else ("", None)
        nick = make_id(info.get("nick"))
        return VendorPerson(
            uid=uid,
            tenant=tenant,
            name=nick,
            username=make_id(info.get("email")).partition("@")[0] or nick,
            groups=groups,
            ids={
                key: value for key, value in (("open_id", make_id(info.get("openId"))), ("user_id", user_id)) if value
            },
        )

    def _fetch_groups(self, app: SocialApp, uid: str) -> tuple[str, tuple[str, ...]]:
        """Return the id of an employee in the organisation, and the departments and roles. Raises SignInError for who
        is no employee."""
        body: dict[str, Any] = {"appKey": app.client_id, "appSecret": app.secret}
        answer = call_api("POST", self._make_url(app, "/v1.0/oauth2/accessToken"), json=body)
        _require_no_code(answer, "IDENTITY_GROUPS")
        params = {"access_token": require_text(answer, "accessToken")}
        answer = call_api("POST", self._make_old_url(app, "user/getbyunionid"), params=params, json={"unionid": uid})
        require_success(answer, "errcode", "IDENTITY_GROUPS", "errmsg")
        found = require_object(answer, "result")
        if found.get("contact_type") != 0:
            raise SignInError("IDENTITY_TENANT_OTHER", "an external contact")
        user_id = require_text(found, "userid")
        answer = call_api("POST", self._make_old_url(app, "v2/user/get"), params=params, json={"userid": user_id})
        require_success(answer, "errcode", "IDENTITY_GROUPS", "errmsg")
        user = require_object(answer, "result")
        roles = user.get("role_list")
        role_ids = [one.get("id") for one in roles if isinstance(one, dict)] if isinstance(roles, list) else []
        return user_id, (*list_groups("department", user.get("dept_id_list")), *list_groups("role", role_ids))

    def _make_url(self, app: SocialApp, path: str) -> str:
        return f"{(app.settings.get('server_url') or self.api_url).rstrip('/')}{path}"

    def _make_old_url(self, app: SocialApp, path: str) -> str:
        return f"{(app.settings.get('server_url') or self.directory_url).rstrip('/')}/topapi/{path}"


def _require_no_code(answer: Mapping[str, Any], code: str) -> None:
    """Raise SignInError for an answer of a failure, which names a code."""
    if "code" in answer:
        raise SignInError(code, f"{str(answer['code'])[:100]} {str(answer.get('message'))[:200]}")


DINGTALK = DingTalk()
