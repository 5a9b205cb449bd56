"""`fermi tokens`, `service-accounts`, `exchange`, `identity` and `sessions` against the real API over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import ApiToken, User
from apps.common.clock import now
from apps.identity.exchange import issuers
from apps.identity.models import IdentityProvider
from apps.identity.oidc import signed_token
from fermi.cli import texts
from fermi.cli.main import run_command
from fermi.client import Fermi, config
from tests.api.conftest import Api, Command, CommandResult, make_user
from tests.fakes.openid import OpenIdServer, serve_openid


@pytest.fixture
def platform(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of the platform, which no token is stored for."""
    for name in ("FERMI_TOKEN", "FERMI_DATA", "FERMI_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FERMI_URL", live_server.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    texts.set_language("en")
    return str(live_server.url)


@pytest.fixture
def command(platform: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `fermi` in this process, as the user whose token is stored."""

    def execute(name: str, *arguments: str) -> CommandResult:
        code = run_command([name, "--lang", "en", *arguments])
        return CommandResult(code, *capsys.readouterr())

    return execute


@pytest.fixture
def issuer(settings: Any) -> Iterator[OpenIdServer]:
    signed_token.cache.clear()
    issuers.descriptions.clear()
    issuers.failures.clear()
    with serve_openid() as running:
        settings.EXCHANGE_ISSUERS = [running.url]
        yield running


def sign_in(api: Api, platform: str) -> None:
    config.save_config(config.Config(platform, api.token))


def test_tokens_are_created_listed_and_revoked(owner: Api, platform: str, command: Command) -> None:
    sign_in(owner, platform)
    made = command("tokens", "create", "ci", "--scope", "tasks:read", "--scope", "projects:read", "--project", "one",
                   "--days", "30")  # fmt: skip
    assert made.code == 0, made.err
    token = made.out.strip()
    assert token.startswith("fermi_")
    assert token not in made.err
    assert "not shown again" in made.err
    assert Api(token=token).get("/training-tasks").status == 200
    assert Api(token=token).get("/sweeps").error == "SCOPE_MISSING"
    listed = json.loads(command("tokens", "-o", "json").out)
    mine = next(one for one in listed["items"] if one["name"] == "ci")
    assert (mine["scopes"], mine["projects"]) == (["projects:read", "tasks:read"], ["project-one"])
    assert "projects:read tasks:read" in command("tokens", "list").out
    assert "Revoked 1 token." in command("tokens", "revoke", "ci").err
    assert Api(token=token).get("/training-tasks").status == 401
    assert command("tokens", "revoke").code == 2
    assert command("tokens", "create").code == 2
    assert command("tokens", "create", "x", "--scope", "tasks:fly").code == 2
    assert "Revoked 1 token." in command("tokens", "revoke", "--all").err
    assert command("tokens").code == 3


def test_service_accounts_are_created_get_tokens_and_are_deleted(
    owner: Api, colleague: Api, platform: str, command: Command
) -> None:
    sign_in(owner, platform)
    assert "ci@project-one" in command("service-accounts", "create", "ci", "--role", "viewer").out
    made = command("service-accounts", "token", "ci", "--scope", "tasks:read", "--days", "2")
    robot = Api(token=made.out.strip())
    assert robot.get("/auth/me").data["username"] == "ci@project-one"
    assert json.loads(command("service-accounts", "-o", "json").out)["items"][0]["tokens"] == 1
    assert command("service-accounts", "delete").code == 2
    assert command("service-accounts", "delete", "ci", "--project", "one").code == 0
    assert robot.get("/auth/me").status == 401
    assert command("service-accounts", "delete", "ci").code == 4
    sign_in(colleague, platform)
    assert command("service-accounts", "create", "other").code == 3


def make_rule(owner: Api, issuer: OpenIdServer, audience: str) -> None:
    with Fermi(token=owner.token) as fermi:
        fermi.service_accounts.create("project-one", "ci")
        fermi.service_accounts.create_exchange_rule(
            "project-one",
            {
                "name": "main",
                "serviceAccount": "ci",
                "issuer": issuer.url,
                "audience": audience,
                "conditions": {"repository": "acme/model", "ref": "refs/heads/main"},
                "scopes": ["tasks:read", "projects:read"],
                "minutes": 10,
            },
        )


@pytest.fixture
def actions(issuer: OpenIdServer) -> Iterator[ThreadingHTTPServer]:
    """What a job of GitHub Actions asks for its ID token, at the address of its variables."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if self.headers["Authorization"] != "Bearer job-secret" or query.get("api-version") != ["2.0"]:
                self.send_error(401)
                return
            claims = {"sub": "repo:acme/model:ref:refs/heads/main", "aud": query["audience"][0], "event_name": "push",
                      "repository": "acme/model", "ref": "refs/heads/main"}  # fmt: skip
            body = json.dumps({"count": 1, "value": issuer.sign_pipeline_token(claims)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_job_of_github_actions_gets_a_token_and_stores_it(
    owner: Api,
    platform: str,
    issuer: OpenIdServer,
    actions: ThreadingHTTPServer,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_rule(owner, issuer, platform)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"http://127.0.0.1:{actions.server_port}/token?api-version=2.0")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "job-secret")
    done = command("exchange", "ci@project-one")
    assert done.code == 0, done.err
    stored = config.load_config()
    assert stored.url == platform
    assert stored.token.startswith("fermi_")
    assert stored.token not in done.out + done.err
    assert "ci@project-one" in command("whoami").out
    shown = command("exchange", "ci@project-one", "--print", "--scope", "tasks:read")
    assert Api(token=shown.out.strip()).get("/training-tasks").status == 200
    refused = command("exchange", "ci@project-one", "--audience", "https://other.example.org")
    assert refused.code == 3
    assert "its aud is https://other.example.org" in refused.err
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "wrong")
    assert command("exchange", "ci@project-one").code == 5


def test_a_job_of_gitlab_has_its_id_token_in_a_variable_and_any_other_in_a_file(
    owner: Api,
    platform: str,
    issuer: OpenIdServer,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    make_rule(owner, issuer, "fermi")
    claims = {"sub": "x", "aud": "fermi", "repository": "acme/model", "ref": "refs/heads/main"}
    monkeypatch.setenv("FERMI_ID_TOKEN", issuer.sign_pipeline_token(claims))
    monkeypatch.setenv("FERMI_TOKEN", "fermi_old")
    done = command("exchange", "ci@project-one", "-o", "json")
    assert json.loads(done.out) == {
        "username": "ci@project-one",
        "scope": "projects:read tasks:read",
        "expires_in": 600,
    }
    assert "FERMI_TOKEN is set" in done.err
    (tmp_path / "id-token").write_text(issuer.sign_pipeline_token(claims) + "\n")
    assert command("exchange", "ci@project-one", "--file", "id-token", "--print").out.startswith("fermi_")
    assert command("exchange", "ci@project-one", "--file", "missing").code == 2
    monkeypatch.delenv("FERMI_ID_TOKEN")
    assert "no pipeline" in command("exchange", "ci@project-one").err


def test_an_administrator_disables_and_enables_a_provider(
    admin: Api, owner: Api, platform: str, command: Command
) -> None:
    IdentityProvider.objects.create(
        id="company",
        kind="openid_connect",
        name="Company",
        client_id="fermi",
        settings={"server_url": "https://id.example.org"},
        created_at=now(),
        updated_at=now(),
    )
    sign_in(admin, platform)
    assert "company" in command("identity").out
    assert "https://id.example.org" in command("identity", "show", "company").out
    assert command("identity", "disable", "company").code == 0
    assert not IdentityProvider.objects.get().enabled
    assert command("identity", "enable", "company").code == 0
    assert IdentityProvider.objects.get().enabled
    assert command("identity", "show").code == 2
    assert command("identity", "show", "other").code == 4
    sign_in(owner, platform)
    assert command("identity").code == 3


def test_sessions_are_listed_and_ended(admin: Api, platform: str, command: Command) -> None:
    ada = Api(make_user("ada"))
    browser = Client(HTTP_USER_AGENT="Firefox")
    login = {"username": "ada", "password": "a long enough password"}
    assert browser.post("/_allauth/browser/v1/auth/login", login, "application/json").status_code == 200
    assert browser.get("/api/v1/auth/me").status_code == 200
    sign_in(ada, platform)
    [session] = json.loads(command("sessions", "-o", "json").out)["items"]
    assert "Firefox" in command("sessions").out
    assert command("sessions", "end").code == 2
    assert command("sessions", "end", "--tokens", session["id"]).code == 2
    assert command("sessions", "end", session["id"]).code == 0
    assert browser.get("/api/v1/auth/me").status_code == 401
    assert command("sessions", "end", session["id"]).code == 4
    assert command("sessions", "--user", "admin").code == 3
    sign_in(admin, platform)
    assert json.loads(command("sessions", "--user", "ada", "-o", "json").out)["total"] == 0
    assert "revoked 1 token" in command("sessions", "end", "--user", "ada", "--all", "--tokens").err
    assert not ApiToken.objects.filter(user=User.objects.get(username="ada")).exists()
