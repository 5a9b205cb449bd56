"""Feishu, DingTalk and WeCom on loopback, written after the pages that the modules of `apps.identity.vendors` name.

They refuse what the real ones refuse, each in its own way: a code twice, a wrong secret, another redirect address, a
verifier that does not fit, a token of another kind, a person whom the application may not see. `python -m
tests.fakes.vendors` serves them for a browser's tests, at whose page `/sign-in` everybody is signed in at once.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

Answer = tuple[int, Any]


@dataclass
class VendorServer:
    """`tenant`: of the person who signs in next. `extra`: sent after each answer, `pause` seconds before each byte."""

    url: str = ""
    client_id: str = "client"
    secret: str = "the application's secret"
    tenant: str = "firm"
    person: str = "p-1"
    name: str = "陈晨"
    member: bool = True
    active: bool = True
    visible: bool = True
    departments: list[Any] = field(default_factory=lambda: ["od-1", "od-2"])
    groups: list[str] = field(default_factory=lambda: ["g-1"])
    filler: int = 0
    paths: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def authorize(self, address: str) -> dict[str, str]:
        """Return the parameters that the person comes back with."""
        asked = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
        assert (asked.get("client_id") or asked["appid"]) == self.client_id
        code = secrets.token_hex(8)
        self.codes[code] = asked
        parameter = "authCode" if "corpid" in asked.get("scope", "") else "code"
        return {parameter: code, "state": asked["state"]}

    def make_token(self, kind: str) -> str:
        token = f"{kind}-{secrets.token_hex(6)}"
        self.tokens[token] = kind
        return token

    def answer(self, path: str, query: dict[str, str], headers: Any, body: dict[str, Any]) -> Answer:
        self.paths.append(path)
        if path.startswith("/open-apis/"):
            return self.answer_feishu(path.removeprefix("/open-apis/"), query, headers, body)
        if path.startswith("/cgi-bin/"):
            return 200, self.answer_wecom(path.removeprefix("/cgi-bin/"), query)
        return self.answer_dingtalk(path, query, headers, body)

    def answer_feishu(self, path: str, query: dict[str, str], headers: Any, body: dict[str, Any]) -> Answer:
        kind = self.tokens.get(str(headers.get("Authorization")).removeprefix("Bearer "))
        if path == "authen/v2/oauth/token":
            return self.exchange_feishu(body)
        if path == "auth/v3/tenant_access_token/internal":
            if (body.get("app_id"), body.get("app_secret")) != (self.client_id, self.secret):
                return 200, {"code": 10014, "msg": "app secret invalid"}
            return 200, {"code": 0, "msg": "ok", "tenant_access_token": self.make_token("tenant"), "expire": 7200}
        if path == "authen/v1/user_info":
            if kind != "user":
                return 200, {"code": 20005, "msg": "The user access token passed is invalid."}
            data = {"name": self.name, "en_name": "Chen", "open_id": f"ou-{self.person}", "tenant_key": self.tenant}
            return 200, {
                "code": 0,
                "msg": "success",
                "data": {**data, "union_id": self.person, "mobile": "+8613800000000"},
            }
        if kind != "tenant":
            return 400, {"code": 99991663, "msg": "Invalid access token for authorization."}
        if not self.visible:
            return 400, {"code": 41050, "msg": "no user authority error"}
        if path == f"contact/v3/users/{self.person}" and query.get("user_id_type") == "union_id":
            status = {"is_frozen": not self.active, "is_resigned": False, "is_activated": True, "is_exited": False}
            return 200, {"code": 0, "data": {"user": {"department_ids": self.departments, "status": status}}}
        if path == "contact/v3/group/member_belong" and query.get("member_id_type") == "union_id":
            start = int(query.get("page_token", "0"))
            more = start + 1 < len(self.groups)
            page = {"group_list": self.groups[start : start + 1], "has_more": more, "page_token": str(start + 1)}
            return 200, {"code": 0, "data": page}
        return 404, {"code": 99991672, "msg": "not found"}

    def exchange_feishu(self, body: dict[str, Any]) -> Answer:
        asked = self.codes.pop(str(body.get("code")), None)
        if (body.get("client_id"), body.get("client_secret")) != (self.client_id, self.secret):
            return 400, {"code": 20002, "error": "invalid_client", "error_description": "The client secret is invalid."}
        if asked is None:
            return 400, {
                "code": 20003,
                "error": "invalid_grant",
                "error_description": "The authorization code is used.",
            }
        digest = hashlib.sha256(str(body.get("code_verifier")).encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            return 400, {"code": 20049, "error": "invalid_grant", "error_description": "PKCE code challenge failed."}
        if body.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"code": 20071, "error": "invalid_grant", "error_description": "redirect_uri does not match."}
        return 200, {"code": 0, "access_token": self.make_token("user"), "expires_in": 7200, "token_type": "Bearer"}

    def answer_dingtalk(self, path: str, query: dict[str, str], headers: Any, body: dict[str, Any]) -> Answer:
        if path == "/v1.0/oauth2/userAccessToken":
            if (body.get("clientId"), body.get("clientSecret")) != (self.client_id, self.secret):
                return 400, {"code": "invalidClientIdOrSecret", "message": "无效的clientId或者clientSecret"}
            if self.codes.pop(str(body.get("code")), None) is None:
                return 400, {"code": "invalidParameter.authCode.notFound", "message": "不存在的临时授权码"}
            token = self.make_token("user")
            return 200, {"accessToken": token, "refreshToken": "r", "expireIn": 7200, "corpId": self.tenant}
        if path == "/v1.0/contact/users/me":
            if self.tokens.get(str(headers.get("x-acs-dingtalk-access-token"))) != "user":
                return 400, {"code": "InvalidAuthentication", "message": "不合法的access_token"}
            return 200, {"nick": self.name, "openId": f"o-{self.person}", "unionId": self.person, "mobile": "138"}
        if path == "/v1.0/oauth2/accessToken":
            if (body.get("appKey"), body.get("appSecret")) != (self.client_id, self.secret):
                return 400, {"code": "invalidClientIdOrSecret", "message": "无效的clientId或者clientSecret"}
            return 200, {"accessToken": self.make_token("app"), "expireIn": 7200}
        if self.tokens.get(query.get("access_token", "")) != "app":
            return 200, {"errcode": 40014, "errmsg": "不合法的access_token"}
        if not self.visible:
            return 200, {"errcode": 60011, "errmsg": "没有调用该接口的权限"}
        if path == "/topapi/user/getbyunionid" and body.get("unionid") == self.person:
            return 200, {
                "errcode": 0,
                "result": {"contact_type": 0 if self.member else 1, "userid": f"u-{self.person}"},
            }
        if path == "/topapi/v2/user/get" and body.get("userid") == f"u-{self.person}":
            roles = [{"id": 507113, "name": "主管", "group_name": "默认"}]
            return 200, {"errcode": 0, "result": {"dept_id_list": [2, 3], "role_list": roles}}
        return 200, {"errcode": 60121, "errmsg": "找不到该用户"}

    def answer_wecom(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if path == "gettoken":
            if (query.get("corpid"), query.get("corpsecret")) != (self.client_id, self.secret):
                return {"errcode": 40001, "errmsg": "invalid credential, hint: [1]"}
            return {"errcode": 0, "errmsg": "ok", "access_token": self.make_token("app"), "expires_in": 7200}
        if self.tokens.get(query.get("access_token", "")) != "app":
            return {"errcode": 40014, "errmsg": "invalid access_token"}
        if path == "auth/getuserinfo":
            if self.codes.pop(query.get("code", ""), None) is None:
                return {"errcode": 40029, "errmsg": "invalid code"}
            if not self.member:
                return {"errcode": 0, "errmsg": "ok", "openid": "o-1", "external_userid": "wm-1"}
            return {"errcode": 0, "errmsg": "ok", "userid": self.person}
        if path == "user/get" and query.get("userid") == self.person:
            if not self.visible:
                return {"errcode": 60011, "errmsg": "no privilege to access/modify contact/party/agent"}
            status = 1 if self.active else 2
            return {"errcode": 0, "userid": self.person, "name": self.name, "department": [1, 7], "status": status}
        return {"errcode": 60111, "errmsg": "userid not found"}


@contextmanager
def serve_vendors(pause: float = 0) -> Iterator[VendorServer]:
    """Serve the vendors on loopback while the block runs."""
    vendors = VendorServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def reply(self, body: dict[str, Any]) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/sign-in":
                self.send_back(parse_qs(parts.query)["redirect_uri"][0])
                return
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, data = vendors.answer(parts.path, query, self.headers, body)
            content = json.dumps(data).encode() + b" " * vendors.filler
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            try:
                for start in range(0, len(content), 1 if pause else len(content)):
                    time.sleep(pause)
                    self.wfile.write(content[start : start + 1] if pause else content)
            except OSError:
                return  # the platform has read enough

        def send_back(self, address: str) -> None:
            self.send_response(302)
            self.send_header("Location", f"{address}?{urlencode(vendors.authorize(self.path))}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    vendors.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield vendors
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    with serve_vendors() as served:
        print(served.url, flush=True)
        threading.Event().wait()
