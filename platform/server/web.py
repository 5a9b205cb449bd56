"""The web process: `python -m server.web [HOST] [PORT]`.

One process serves; more of them behind a proxy serve more. Logs go where Django's settings send them.
"""

import sys

import uvicorn

from apps.doors.limits import LONGEST
from server.http import Http
from server.metrics_port import serve_if_asked
from server.sockets import Sockets


def main(host: str = "127.0.0.1", port: str = "8000") -> None:
    serve_if_asked()
    uvicorn.run(
        "server.asgi:application",
        host=host,
        port=int(port),
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        http=Http,
        ws=Sockets,
        ws_max_size=LONGEST,
        ws_ping_timeout=None,  # a reader that waits (`fermi run … | less`) answers no ping; TCP knows who is gone
        ws_per_message_deflate=False,  # what is sent is small, or packed already; each connection would hold its window
        timeout_graceful_shutdown=3,  # seconds; open event streams would hold it for ever
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
