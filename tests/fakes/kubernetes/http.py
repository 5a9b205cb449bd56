"""The API over HTTP: paths to verbs, verbs to answers, streams in chunks."""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import orjson

from tests.fakes.kubernetes import discovery, pod_exec, port_forward, watches
from tests.fakes.kubernetes.access import USER, Access
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused, bad_request, forbidden, no_such_path
from tests.fakes.kubernetes.faults import Call, Fault, Faults
from tests.fakes.kubernetes.resources import ACCESS_REVIEWS, NAMESPACES, PODS, POSITIONS, Resource, find

LogReader = Callable[[str, str, Mapping[str, str]], Iterator[bytes]]
NOT_ALLOWED = "the server does not allow this method on the requested resource"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class Cut(Exception):
    """The connection ends here, without a word."""


@dataclass(frozen=True)
class Request:
    verb: str
    resource: Resource
    version: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    content_type: str
    body: Any


class Server:
    """Serves on `port` (the same one after `stop` and `start`). `calls`: every request, in order of arrival."""

    def __init__(self, api: Api, read_log: LogReader, token: str) -> None:
        self.api, self.read_log, self.token = api, read_log, token
        self.pending: Callable[[str, str, Mapping[str, str]], dict[str, Any]] = lambda *_: {}
        """What Kueue says of the order in a LocalQueue."""
        self.execute: Callable[[Any, str, Sequence[str]], Any] = lambda *_: None
        """Begins a further process in a container."""
        self.answers: Callable[[str], bool] = lambda node: True
        """Whether the kubelet of a node does."""
        self.kubelets_speak_v5 = False
        """As from Kubernetes 1.36 on; before, the API server does."""
        self.idle_seconds = pod_exec.IDLE_SECONDS
        self.streams: dict[socket.socket, str] = {}
        """Of `pods/exec`, with their nodes."""
        self.severed: set[socket.socket] = set()
        """Those that end with the process that translates them."""
        self.execution: Sequence[str] = (pod_exec.V5, pod_exec.V4)
        """Protocols of `pods/exec`; the first is there from Kubernetes 1.30 on."""
        self.websockets_create = True
        """A WebSocket to a subresource of a pod asks for the right to create it besides, as from Kubernetes 1.35 on
        (pkg/features/kube_features.go: AuthorizePodWebsocketUpgradeCreatePermission); before, to get it alone."""
        self.access, self.faults = Access(), Faults()
        self.features: set[str] = set()
        self.kubernetes_version = "1.34.0"
        self.bookmark_seconds = 1.0
        self.gone_as_status = False
        """A watch from a forgotten version is answered with HTTP 410 instead of an ERROR event; both happen."""
        self.anonymous = False
        """Requests without credentials are taken as nobody's, instead of being refused with 401."""
        self.speaks_https = False
        """It answers as a server with TLS does to a request without (golang/go, src/net/http/server.go)."""
        self.latency = 0.0
        """Seconds that a request takes at least, watches and logs aside."""
        self.calls: list[Call] = []
        self.unauthorized = 0
        self.port = 0
        self.generation = 0
        self._server: _Http | None = None

    def start(self) -> None:
        self._server = _Http(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def record_call(self, call: Call) -> int:
        with self.api.store.lock:
            self.calls.append(call)
            return len(self.calls) - 1

    def break_connections(self) -> None:
        self.generation += 1
        if self._server:
            self._server.break_connections()

    def sever(self, node: str) -> None:
        """Ends the streams to a kubelet that ends."""
        for one, there in list(self.streams.items()):
            if there == node:
                self.severed.add(one)
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Breaks every connection."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            if not self.kubelets_speak_v5:
                self.severed.update(self.streams)
            self.break_connections()
            self._server = None


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, *args: Any) -> None:
        self._sockets: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._sockets.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (ConnectionError, Cut)):  # a client that goes away is no fault
            super().handle_error(request, client_address)


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        fake = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    fake: Server

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        split = urlsplit(self.path)
        self.generation = self.fake.generation
        try:
            self._dispatch([unquote(part) for part in split.path.split("/") if part], dict(parse_qsl(split.query)), raw)
        except Refused as refused:
            if refused.plain:
                return self._text(refused.code, refused.message.encode())
            self._send(refused.code, refused.status, refused.headers)
        except Cut:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, *_: object) -> None:
        pass

    def _dispatch(self, parts: list[str], query: dict[str, str], raw: bytes) -> None:
        fake = self.fake
        if fake.speaks_https:
            return self._text(400, b"Client sent an HTTP request to an HTTPS server.\n")
        if fake.anonymous and "Authorization" not in self.headers:
            return self._as_nobody(parts)
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if (scheme.lower(), token) != ("bearer", fake.token):  # the scheme in any case, as in the in-cluster client
            fake.unauthorized += 1
            raise Refused(401, "Unauthorized", "Unauthorized")
        if parts in (["healthz"], ["livez"], ["readyz"]):
            if fake.access.loading:
                raise Refused(403, "Forbidden", f'forbidden: User "{USER}" cannot get path "/{parts[0]}"')
            return self._text(200, b"ok")
        if parts == ["version"]:
            return self._send(200, discovery.version(fake.kubernetes_version))
        if self.command == "GET" and (found := discovery.answer(parts, fake.features)):
            return self._send(200, found)
        request = self._parse(parts, query, raw)
        if request is None:
            return self._text(404, b"404 page not found\n")
        agent = self.headers.get("User-Agent", "")
        name = request.name
        if request.verb == "create" and not name:
            name = (request.body.get("metadata") or {}).get("name", "")
        call = Call(
            request.verb, request.resource.plural, request.namespace, name, request.subresource, agent,
            time.time(),
        )  # fmt: skip
        number = fake.record_call(call)
        fault = fake.faults.strike(call)

        def note(code: int) -> None:
            """Before the answer is sent: who has it finds it written down."""
            fake.calls[number] = replace(call, code=code)

        try:
            self._answer(request, fault, note)
        except Refused as refused:
            note(refused.code)
            raise

    def _as_nobody(self, parts: list[str]) -> None:
        """A request without credentials, where the API server takes those (--anonymous-auth, its default): it may see
        the version and nothing else (kubernetes/kubernetes,
        plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go, system:public-info-viewer)."""
        if parts == ["version"]:
            return self._send(200, discovery.version(self.fake.kubernetes_version))
        path = "/" + "/".join(parts)
        raise Refused(403, "Forbidden", f'forbidden: User "system:anonymous" cannot get path "{path}"')

    def _parse(self, parts: list[str], query: dict[str, str], raw: bytes) -> Request | None:
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource, *more = [*rest, "", "", ""][: max(3, len(rest))]
        resource = find(group, plural)
        if resource is None or version not in resource.versions or any(more):
            return None
        if resource.feature and resource.feature not in self.fake.features:
            return None
        body = orjson.loads(raw) if raw else {}
        verb = VERBS[self.command]
        if verb == "get" and not name:
            verb = "watch" if query.get("watch") in ("true", "True", "1") else "list"
        if verb == "delete" and not name:
            verb = "deletecollection"
        kind = (self.headers.get("Content-Type") or "").partition(";")[0]
        return Request(verb, resource, version, namespace, name, subresource, query, kind, body)

    def _answer(self, request: Request, fault: Fault | None, note: Callable[[int], None]) -> None:
        if fault and not fault.after:
            self._strike(fault)
        resource = request.resource
        self.fake.access.check(
            request.verb, resource.plural, resource.group, request.subresource, request.namespace, request.name
        )
        if request.verb == "watch":
            note(200)
            return self._watch(request, fault)
        if request.subresource == "log":
            note(200)
            return self._log(request)
        if request.subresource in ("portforward", "exec"):
            note(101)
            return self._upgrade(request)
        time.sleep(self.fake.latency)
        try:
            code, body = self._do(request)
        except Refused:
            if fault and fault.after:
                self._strike(fault)
            raise
        if not fault:
            note(code)
        if fault and fault.after:
            self._strike(fault)
        return self._send(code, body)

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "refuse" and fault.refused:
            raise fault.refused
        if fault.kind == "hang":
            while not self._left():
                time.sleep(0.02)
        if fault.kind == "kill":
            os.kill(fault.victim, signal.SIGKILL)
        if fault.kind in ("hang", "reset", "kill"):
            with contextlib.suppress(OSError):  # an RST, not a polite FIN
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            raise Cut

    def _do(self, request: Request) -> tuple[int, Any]:
        api, resource = self.fake.api, request.resource
        where = (resource, request.namespace)
        dry = request.query.get("dryRun") == "All"
        body = request.body
        match request.verb:
            case "create" if resource is ACCESS_REVIEWS:
                return 201, self.fake.access.review(body)
            case "create" if request.subresource == "eviction":
                options = body.get("deleteOptions") or {}
                api.delete(PODS, request.namespace, request.name, options)
                return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            case "create":
                if resource.namespaced and not request.namespace:
                    raise Refused(405, "MethodNotAllowed", NOT_ALLOWED)
                self.fake.access.check_owners(resource.plural, resource.group, request.namespace, body)
                return 201, self._shown(request, api.create(*where, body, dry_run=dry))
            case "get" if request.subresource == "pendingworkloads":
                return 200, self.fake.pending(request.namespace, request.name, request.query)
            case _ if resource is POSITIONS:
                raise Refused(405, "MethodNotAllowed", NOT_ALLOWED)
            case "get":
                return 200, self._shown(request, api.get(*where, request.name))
            case "list":
                return 200, watches.listing(api.store, self._asked(request))
            case "update":
                return 200, self._shown(request, api.update(*where, request.name, body, request.subresource, dry))
            case "patch":
                done = api.patch(*where, request.name, body, request.content_type, request.subresource, dry)
                return 200, self._shown(request, done)
            case "delete":
                return 200, self._deleted(request, api.delete(*where, request.name, _options(request)))
            case "deletecollection":
                found = watches.listing(api.store, self._asked(request))
                for meta in (item["metadata"] for item in found["items"]):
                    api.delete(resource, meta.get("namespace", ""), meta["name"], _options(request))
                return 200, found
        raise no_such_path()

    def _deleted(self, request: Request, obj: dict[str, Any]) -> dict[str, Any]:
        """The object while it lingers (and a pod in any case), else a Status."""
        resource, meta = request.resource, obj["metadata"]
        if resource in (PODS, NAMESPACES) or not self.fake.api.is_gone(resource, obj):
            return self._shown(request, obj)
        details = {"name": meta["name"], "kind": resource.plural, "uid": meta["uid"]}
        details |= {"group": resource.group} if resource.group else {}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _shown(self, request: Request, obj: dict[str, Any]) -> dict[str, Any]:
        return obj | {"apiVersion": request.resource.api_version(request.version), "kind": request.resource.kind}

    def _asked(self, request: Request) -> watches.Asked:
        bare = "as=PartialObjectMetadata" in self.headers.get("Accept", "")
        return watches.Asked(request.resource, request.version, request.namespace, request.query, bare)

    def _watch(self, request: Request, fault: Fault | None) -> None:
        fake, asked = self.fake, self._asked(request)
        version = int(request.query.get("resourceVersion") or 0)
        if version and fake.gone_as_status:
            fake.api.store.since(request.resource, version)
        self._begin_stream("application/json")
        sent = 0
        ended = lambda: self.generation != fake.generation  # noqa: E731
        for _, batch in watches.events(fake.api.store, asked, ended, fake.bookmark_seconds):
            if self.generation != fake.generation or (not batch and self._left()):
                break
            for event in batch:
                line = orjson.dumps(event) + b"\n"
                sent += 1
                if fault and fault.kind == "cut" and sent == fault.events:
                    self._chunk(line[: len(line) // 2])
                    raise Cut
                self._chunk(line, flush=False)
            self.wfile.flush()
        self._end_stream()

    def _log(self, request: Request) -> None:
        lines = self.fake.read_log(request.namespace, request.name, request.query)
        first = next(lines, b"")  # what cannot be read is refused before the stream begins
        self._begin_stream("text/plain")
        self._chunk(first)
        for data in lines:
            if self.generation != self.fake.generation or (not data and self._left()):
                break
            self._chunk(data)
        self._end_stream()

    def _upgrade(self, request: Request) -> None:
        full = f"pods/{request.subresource}"
        if self.fake.websockets_create and not self.fake.access.allows("create", full, request.namespace):
            raise forbidden(PODS, request.name, "")  # the authorizer's reason, and RBAC gives none
        pod = self.fake.api.get(PODS, request.namespace, request.name)
        self.close_connection = True
        if request.subresource == "portforward":
            return port_forward.serve(self, pod, int(request.query["ports"]))
        names = [one["name"] for one in pod["spec"]["containers"]]
        container = request.query.get("container") or names[0]
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {request.name}")
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {request.name} does not have a host assigned")
        query = parse_qs(urlsplit(self.path).query)
        begin = lambda command: self.fake.execute(pod, container, command)  # noqa: E731
        fake, node = self.fake, pod["spec"]["nodeName"]
        terms = pod_exec.Terms(
            answers=lambda: fake.answers(node), severed=lambda: self.connection in fake.severed, known=fake.execution,
            kubelet_speaks=fake.kubelets_speak_v5, idle=lambda: fake.idle_seconds,
        )  # fmt: skip
        fake.streams[self.connection] = node
        try:
            return pod_exec.serve(self, query, begin, terms)
        finally:
            del fake.streams[self.connection]
            fake.severed.discard(self.connection)

    def _begin_stream(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data: bytes, *, flush: bool = True) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if flush:
            self.wfile.flush()

    def _end_stream(self) -> None:
        if self.generation != self.fake.generation:
            raise Cut
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _left(self) -> bool:
        """Whether the client has gone away (or the server is going down)."""
        if self.generation != self.fake.generation:
            return True
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _send(self, code: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        self._raw(code, "application/json", orjson.dumps(body), headers or {})

    def _text(self, code: int, body: bytes) -> None:
        self._raw(code, "text/plain; charset=utf-8", body, {})

    def _raw(self, code: int, content_type: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _options(request: Request) -> dict[str, Any]:
    """Delete options may come in the body or in the query."""
    options = dict(request.body or {})
    for name in ("propagationPolicy", "gracePeriodSeconds"):
        if name in request.query:
            options[name] = request.query[name]
    if options.get("gracePeriodSeconds") is not None:
        try:
            options["gracePeriodSeconds"] = int(options["gracePeriodSeconds"])
        except ValueError as error:
            raise bad_request(str(error)) from error
    return options
