"""A web process as uvicorn serves it, with two people's environment behind it and a stranger beside."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from django.test import Client

from apps.accounts.models import ApiToken, Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.environments import connection
from tests.platform_process import free_port
from tests.polling import until
from tests.proxy.fake_envd import FakeEnvd
from tests.proxy.web_service import Service

ENVIRONMENT = "env-7kq2m9x4td"


class Console:
    """One person at the console: `session` is their cookie."""

    def __init__(self, user: User, port: int) -> None:
        client = Client()
        client.force_login(user)
        self.user, self.port = user, port
        self.session = client.cookies["sessionid"].value
        self.origin = f"http://localhost:{port}"
        self.token = ApiToken.objects.create(user=user)[1]
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Accept-Language": "en", "Accept": "text/html"},
            timeout=30,
            trust_env=False,
        )

    def open(self, environment: str = ENVIRONMENT, **query: str) -> httpx.Response:
        headers = {"Host": f"localhost:{self.port}", "Cookie": f"sessionid={self.session}"}
        return self.http.get(f"/environments/{environment}/open", params=query, headers=headers)

    def sign_out(self) -> None:
        client = Client()
        client.cookies["sessionid"] = self.session
        client.logout()

    def enter(self, **query: str) -> "Inside":
        answer = self.open(**query)
        assert answer.status_code == 302, answer.text
        return self.through(answer.headers["location"])

    def through(self, address: str) -> "Inside":
        return Inside(self.port, address)


class Inside:
    """A browser at a proxy address: it has a cookie of that host."""

    def __init__(self, port: int, address: str) -> None:
        parts = urlsplit(address)
        self.port, self.host, self.origin = port, parts.netloc, f"{parts.scheme}://{parts.netloc}"
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)
        self.entered = self.get(f"{parts.path}?{parts.query}")
        self.cookie = self.entered.headers.get("set-cookie", "").partition(";")[0]

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", path, headers=headers)

    def headers(self, **more: str) -> dict[str, str]:
        given = {name.replace("_", "-"): value for name, value in more.items()}
        cookie = getattr(self, "cookie", "")
        return {"Host": self.host, **({"Cookie": cookie} if cookie else {}), **given}

    def send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        try:
            return self.http.request(method, path, headers=self.headers(**(headers or {})), **more)
        finally:
            self.http.cookies.clear()  # kept by address, and all hosts here have one

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@pytest.fixture(scope="session")
def web(django_db_setup: None) -> Iterator[int]:
    """All but heartbeats, whose clock goes on behind other tests."""
    from apps.common.asgi import ErrorResponseMiddleware
    from apps.proxy.channels import ChannelsApp
    from apps.proxy.http_proxy import EnvironmentProxy
    from apps.proxy.websocket_limits import MAX_MESSAGE_BYTES
    from server.asgi import DjangoHandler
    from server.http import HttpProtocol
    from server.web import WebSocketProtocol

    port = free_port()
    config = uvicorn.Config(
        ErrorResponseMiddleware(EnvironmentProxy(ChannelsApp(DjangoHandler()))), "127.0.0.1", port, lifespan="off",
        access_log=False, log_config=None, http=HttpProtocol, ws=WebSocketProtocol, ws_max_size=MAX_MESSAGE_BYTES,
    ws_per_message_deflate=False, timeout_graceful_shutdown=1, )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, what="the web process listens")
    yield port
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def _envd(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeEnvd]:
    running = FakeEnvd(tmp_path_factory.mktemp("k") / "s", {"jupyter": service.port, "second": service.port})
    yield running
    running.close()


@pytest.fixture
def envd(_envd: FakeEnvd, monkeypatch: pytest.MonkeyPatch) -> FakeEnvd:
    monkeypatch.setattr(connection, "dial_envd", lambda environment: _envd.dial())
    _envd.away = False
    _envd.asked.clear()
    return _envd


@pytest.fixture
def world(transactional_db: None, envd: FakeEnvd) -> DevEnvironment:
    project = Project.objects.create(pk="project-one", name="one")
    Project.objects.create(pk="project-two", name="two")
    cluster = Cluster.objects.create(pk="local", name="local", backend="local")
    zone = AvailabilityZone.objects.create(pk="zone", name="zone")
    return DevEnvironment.objects.create(
        pk=ENVIRONMENT, name="notebook", project=project, cluster=cluster, zone=zone, kind="jupyter"
    )


@pytest.fixture
def person(world: DevEnvironment, web: int) -> Callable[..., Console]:
    def made(name: str, role: str | None = Role.MEMBER, project: str = "project-one") -> Console:
        user = User.objects.create_user(name)
        if role:
            Membership.objects.create(user=user, project_id=project, role=role)
        return Console(user, web)

    return made


@pytest.fixture
def member(person: Callable[..., Console]) -> Console:
    return person("member")


@pytest.fixture
def stranger(person: Callable[..., Console]) -> Console:
    return person("stranger", Role.MAINTAINER, "project-two")


@pytest.fixture
def inside(member: Console) -> Inside:
    return member.enter()
