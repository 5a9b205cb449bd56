"""Serves one stream: `python -m fermi.inside HOME`. Requests are answered one after the other; attempts are followed in
parallel. Ends with its standard input.

A module that few streams need is imported by the requests that need it: a stream that follows starts in half the time
so, and many may start at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from fermi.inside import node_runs, output_files, protocol
from fermi.inside.progress import AttemptFollower, MessageStream

Answer = dict[str, Any]
BACKGROUND_REQUESTS = ("digest",)
"""Requests that others do not wait for, above all a request to cancel."""


def serve_requests(home: str) -> None:
    """Serve requests until the stream ends. Raises ProtocolError."""
    source, output = sys.stdin.buffer, MessageStream(sys.stdout.buffer)
    following = AttemptFollower(home, output)
    asked: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
        "survey": lambda request, _: collect_survey(home, request),
        "install": lambda request, _: install(home, request, output),
        "end-kernel": lambda request, _: end_kernel(request),
        "begin": lambda request, _: node_runs.begin_run(home, resolve_request_interpreter(request)),
        "stand-by": lambda request, _: keep_standby(home, request),
        "receive": lambda request, data: output_files.receive_piece(home, request, data),
        "expect": lambda request, _: output_files.compare_sent_files(home, request),
        "list": lambda request, _: output_files.list_outputs(home, request),
        "read": lambda request, _: output_files.read_piece(home, request),
        "digest": lambda request, _: output_files.hash_file(home, request),
        "follow": lambda request, _: following.follow(request),
        "cancel": lambda request, _: following.cancel(request),
        "forget": lambda request, _: following.delete_attempt(request),
    }
    output.write(protocol.READY_LINE)
    while (came := protocol.read_message(source)) is not None:
        request, data = came
        following.hear()
        if "alive" in request:
            continue
        if request.get("ask") in BACKGROUND_REQUESTS:
            threading.Thread(target=_write_answer, args=(output, asked, request, data), daemon=True).start()
        else:
            _write_answer(output, asked, request, data)


def _write_answer(
    output: MessageStream, asked: dict[str, Callable[[dict[str, Any], bytes], Answer]], *came: Any
) -> None:
    request, data = came
    found = answer_request(asked, request, data)
    said = {"id": request.get("id"), **found}
    more = said.pop("data", None)
    with contextlib.suppress(BrokenPipeError):  # serve hears of it, too
        output.write(protocol.encode_line(said) if more is None else protocol.encode_frame(said, more))


def collect_survey(home: str, request: dict[str, Any]) -> Answer:
    """Answer `survey`."""
    from fermi.inside import survey

    return survey.collect_survey(home, request)


def install(home: str, request: dict[str, Any], output: MessageStream) -> Answer:
    """Answer `install`."""
    from fermi.inside import installation

    return installation.install_packages(home, request, lambda told: output.write(protocol.encode_line(told)))


def end_kernel(request: dict[str, Any]) -> Answer:
    """Answer `end-kernel`."""
    from fermi.inside import kernels

    return kernels.end_kernel(request)


def keep_standby(home: str, request: dict[str, Any]) -> Answer:
    """Answer `stand-by`."""
    from fermi.inside import standby

    return standby.keep_standby(home, request)


def resolve_request_interpreter(request: dict[str, Any]) -> dict[str, Any]:
    """Return a `begin` request with the path of the interpreter, which may be named as a kernel. Raises
    InsideRefusedError if there is none."""
    order = request["order"]
    named = str(order.get("python") or "")
    if not named or named.startswith("/"):
        return request
    from fermi.inside import interpreters, survey

    return {**request, "order": {**order, "python": survey.find_interpreter(named, interpreters.find_interpreters())}}


def answer_request(
    handlers: dict[str, Callable[[dict[str, Any], bytes], Answer]], request: dict[str, Any], data: bytes
) -> Answer:
    """Return the answer to a request, which may be an error."""
    ask = handlers.get(str(request.get("ask")))
    try:
        if ask is None:
            raise protocol.InsideRefusedError("INSIDE_UNKNOWN_REQUEST", asked=str(request.get("ask"))[:100])
        return {"ok": True, **ask(request, data)}
    except protocol.InsideRefusedError as refused:
        return {"ok": False, "code": refused.code, "params": refused.params}
    except OSError as error:
        params = {"path": str(error.filename or ""), "why": error.strerror or str(error)}
        return {"ok": False, "code": "INSIDE_DISK_UNUSABLE", "params": params}
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return {"ok": False, "code": "INSIDE_REQUEST_INVALID", "params": {"why": why}}


def main(home: str) -> None:
    """Serve standard input and output, then exit."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with contextlib.suppress(protocol.ProtocolError, BrokenPipeError):
        serve_requests(home)
    os._exit(0)  # the thread that follows needs no end of its own


if __name__ == "__main__":
    main(sys.argv[1])
