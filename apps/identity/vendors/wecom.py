"""WeCom (企业微信), for an application that an organisation made for itself.

Written after the pages of developer.work.weixin.qq.com/document/path: `98171` (the address of the sign-in), `91039`
(the application's token), `98177` (whose code it is) and `90196` (departments).

The organisation is the client: `client_id` is its CorpID. A member is known by UserID, which is unique in the
organisation alone; people who are no members have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from allauth.socialaccount.models import SocialApp

from apps.identity.errors import SignInError
from apps.identity.vendors.calls import call_api, require_success, require_text
from apps.identity.vendors.person import VendorPerson, list_groups, make_id

ACTIVE = 1
"""`status` of a member: 1 active, 2 disabled, 4 not activated, 5 left."""


@dataclass(frozen=True)
class Wecom:
    sign_in_url: str = "https://login.work.weixin.qq.com/wwlogin/sso/login"
    api_url: str = "https://qyapi.weixin.qq.com"
    tenant_setting: str = ""
    has_pkce: bool = False

    def build_sign_in_url(self, app: SocialApp, callback_url: str, state: str, challenge: Mapping[str, str]) -> str:
        values = {
            "login_type": "CorpApp",
            "appid": app.client_id,
            "agentid": app.settings["agent_id"],
            "redirect_uri": callback_url,
            "state": state,
        }
        return f"{app.settings.get('authorize_url') or self.sign_in_url}?{urlencode(values)}"

    def fetch_person(self, app: SocialApp, code: str, callback_url: str, verifier: str) -> VendorPerson:
        params = {"corpid": app.client_id, "corpsecret": app.secret}
        answer = call_api("GET", self._make_url(app, "gettoken"), params=params)
        require_success(answer, "errcode", "IDENTITY_CLIENT_REFUSED", "errmsg")
        token = require_text(answer, "access_token")
        params = {"access_token": token, "code": code}
        answer = call_api("GET", self._make_url(app, "auth/getuserinfo"), params=params)
        require_success(answer, "errcode", "IDENTITY_CODE_REFUSED", "errmsg")
        uid = make_id(answer.get("userid"))
        if not uid:
            raise SignInError("IDENTITY_TENANT_OTHER", "no member")
        name, groups = self._fetch_groups(app, token, uid) if app.settings.get("fetch_groups") else ("", None)
        return VendorPerson(uid=uid, tenant=app.client_id, name=name, username=uid, groups=groups)

    def _fetch_groups(self, app: SocialApp, token: str, uid: str) -> tuple[str, tuple[str, ...]]:
        """Return the name and the departments of a member. Raises SignInError for who is disabled, or not among those
        whom the application may see."""
        answer = call_api("GET", self._make_url(app, "user/get"), params={"access_token": token, "userid": uid})
        require_success(answer, "errcode", "IDENTITY_GROUPS", "errmsg")
        if answer.get("status") != ACTIVE:
            raise SignInError("IDENTITY_USER_INACTIVE")
        return make_id(answer.get("name")), tuple(list_groups("department", answer.get("department")))

    def _make_url(self, app: SocialApp, path: str) -> str:
        return f"{(app.settings.get('server_url') or self.api_url).rstrip('/')}/cgi-bin/{path}"


WECOM = Wecom()
