"""A service of an environment behind the proxy: a Tornado server, as Jupyter is one."""

import asyncio
import hashlib
import json
import threading
from typing import Any

import tornado.httpserver
import tornado.iostream
import tornado.netutil
import tornado.web
import tornado.websocket

LARGE = 24 << 20


class Service:
    """In a thread of its own."""

    def __init__(self) -> None:
        self.left = threading.Event()  # somebody went away from /sse
        self.closed: list[int | None] = []  # codes that WebSockets were closed with
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self.port = 0
        threading.Thread(target=self._run, daemon=True).start()
        assert self._ready.wait(20)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with_us = {"service": self}
        app = tornado.web.Application(
            [
                (r"/seen.*", Seen), (r"/large", Large), (r"/short", Short), (r"/upload", Upload),
                (r"/sse", Events, with_us), (r"/set", SetsCookies), (r"/broken", Broken), (r"/away", Away),
                (r"/ws", Echo, with_us), (r"/ws-no", Refuses), (r"/ws-away", Away),
            ]
        )  # fmt: skip
        sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]

        async def serve() -> None:
            tornado.httpserver.HTTPServer(app, max_body_size=1 << 30, max_buffer_size=1 << 26).add_sockets(sockets)
            self._ready.set()

        self._loop.create_task(serve())
        self._loop.run_forever()


class Seen(tornado.web.RequestHandler):
    """What reached it."""

    def _answer(self) -> None:
        headers = [[name.lower(), value] for name, value in self.request.headers.get_all()]
        said = {"method": self.request.method, "uri": self.request.uri, "headers": headers}
        self.write({**said, "body": self.request.body.decode("latin-1")})

    get = post = put = delete = patch = options = _answer  # type: ignore[assignment]

    def head(self) -> None:
        self.set_header("Content-Length", "12345")


class Large(tornado.web.RequestHandler):
    def get(self) -> None:
        whole = bytes(range(256)) * (LARGE // 256)
        begin, end = 0, LARGE
        if given := self.request.headers.get("Range"):
            first, _, last = given.removeprefix("bytes=").partition("-")
            begin, end = int(first), int(last or LARGE - 1) + 1
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {begin}-{end - 1}/{LARGE}")
        self.set_header("Content-Length", str(end - begin))
        self.write(whole[begin:end])


class Short(tornado.web.RequestHandler):
    """Half of what it says."""

    async def get(self) -> None:
        self.set_header("Content-Length", str(LARGE))
        self.write(bytes(LARGE // 2))
        await self.flush()
        self.request.connection.stream.close()  # type: ignore[union-attr, attr-defined]


class Events(tornado.web.RequestHandler):
    def initialize(self, service: Service) -> None:
        self._service, self._gone = service, False

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        count = 0
        try:
            while not self._gone:
                self.write(f"data: {count}\n\n")
                await self.flush()
                count += 1
                await asyncio.sleep(0.05)
        except tornado.iostream.StreamClosedError:
            pass

    def on_connection_close(self) -> None:
        self._gone = True
        self._service.left.set()


@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    def prepare(self) -> None:
        self._hash, self._count, self._pieces = hashlib.sha256(), 0, 0

    def data_received(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._count += len(chunk)
        self._pieces += 1

    def put(self) -> None:
        self.write({"sha256": self._hash.hexdigest(), "count": self._count, "pieces": self._pieces})


class SetsCookies(tornado.web.RequestHandler):
    def get(self) -> None:
        for cookie in (
            "plain=1; Path=/", "wide=2; Domain=.localhost; Path=/; HttpOnly", "sessionid=stolen; Path=/",
            "fermi_door=stolen", "csrftoken=x; domain=localhost",
        ):  # fmt: skip
            self.add_header("Set-Cookie", cookie)
        self.set_header("Clear-Site-Data", '"cookies"')
        self.set_header("Strict-Transport-Security", "max-age=9; includeSubDomains")
        self.set_header("X-Own", "kept")


class Broken(tornado.web.RequestHandler):
    """Ends in the middle of what it announced."""

    async def get(self) -> None:
        self.set_header("Content-Length", "1000")
        self.write(b"x" * 10)
        await self.flush()
        self.detach().close()

    def finish(self, *_: Any) -> Any:
        return asyncio.sleep(0)


class Away(tornado.web.RequestHandler):
    """Would have whoever asks go elsewhere."""

    def get(self) -> None:
        self.redirect("ws://127.0.0.1:1/" if "ws" in self.request.path else "http://127.0.0.1:1/there")


class Echo(tornado.websocket.WebSocketHandler):
    def initialize(self, service: Service) -> None:
        self._service = service

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return "v2" if "v2" in subprotocols else None

    def open(self, *_: str, **__: str) -> None:
        self.write_message(json.dumps({name.lower(): value for name, value in self.request.headers.get_all()}))

    def on_message(self, message: str | bytes) -> None:
        if message == "close":
            self.close(4321, "as asked")
        else:
            self.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        self._service.closed.append(self.close_code)


class Refuses(tornado.web.RequestHandler):
    def get(self) -> None:
        self.set_status(418)
        self.write("no sockets here")
