"""An OpenID Connect provider on loopback. It refuses what a real one refuses: a code twice, another redirect address, a
wrong secret, a PKCE verifier that does not fit. `python -m tests.fakes.openid` serves one for a browser's tests, which
signs everybody in at once, and prints its address."""

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

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass
class OpenIdServer:
    """`claims`: of the person who signs in next; None removes one. `token`: in place of a signed one."""

    url: str = ""
    client_id: str = "fermi"
    secret: str = "a secret of more than thirty-two bytes"
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "u-1", "preferred_username": "ada"})
    userinfo: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    names_issuer: bool = False
    key_requests: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(init=False)
    kid: str = field(init=False)

    def __post_init__(self) -> None:
        self.rotate_key()

    def rotate_key(self) -> None:
        self.key, self.kid = rsa.generate_private_key(65537, 2048), secrets.token_hex(4)

    def authorize(self, address: str) -> dict[str, str]:
        """Return the parameters that the person comes back with, as after a successful sign-in at this provider."""
        asked = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == self.client_id
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_hex(8)
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], **({"iss": self.url} if self.names_issuer else {})}

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "authorization_response_iss_parameter_supported": self.names_issuer,
        }

    def list_keys(self) -> dict[str, Any]:
        self.key_requests += 1
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.kid, "use": "sig", "alg": "RS256"}]}

    def sign(self, claims: dict[str, Any], algorithm: str = "RS256", key: Any = None, kid: str = "") -> str:
        """Return an ID token as a pipeline gets it: it has no nonce, and names the audience that the pipeline wants.
        None removes a claim."""
        now = int(time.time())
        all_claims = {"iss": self.url, "iat": now, "nbf": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}
        kept = {name: value for name, value in all_claims.items() if value is not None}
        signer = None if algorithm == "none" else key or self.key
        return jwt.encode(kept, signer, algorithm=algorithm, headers={"kid": kid or self.kid})

    def exchange(self, form: dict[str, str]) -> dict[str, Any] | None:
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or challenge != asked["code_challenge"] or form.get("client_secret") != self.secret:
            return None
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return None
        now = int(time.time())
        standard = {"iss": self.url, "aud": self.client_id, "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        claims = {key: value for key, value in {**standard, **self.claims}.items() if value is not None}
        key: Any = {"none": None, "HS256": self.secret}.get(self.algorithm, self.key)
        token = jwt.encode(claims, key, algorithm=self.algorithm, headers={"kid": self.kid})
        return {"access_token": "access", "token_type": "Bearer", "id_token": token}


@contextmanager
def serve_openid() -> Iterator[OpenIdServer]:
    """Serve a provider on loopback while the block runs."""
    provider = OpenIdServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == "/.well-known/openid-configuration":
                self.answer(provider.describe())
            elif path == "/authorize":
                self.send_back(parse_qs(urlsplit(self.path).query)["redirect_uri"][0])
            elif path == "/keys":
                self.answer(provider.list_keys())
            elif path == "/userinfo":
                self.answer({"sub": provider.claims.get("sub"), **provider.userinfo})
            else:
                self.answer(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.answer(provider.exchange({key: values[0] for key, values in parse_qs(body).items()}))

        def send_back(self, address: str) -> None:
            self.send_response(302)
            self.send_header("Location", f"{address}?{urlencode(provider.authorize(self.path))}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer(self, data: dict[str, Any] | None) -> None:
            content = json.dumps(data or {"error": "invalid_grant"}).encode()
            self.send_response(200 if data else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    with serve_openid() as served:
        print(served.url, flush=True)
        threading.Event().wait()
