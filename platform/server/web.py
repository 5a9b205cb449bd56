"""The web process: `python -m server.web [HOST] [PORT]`.

One process serves; more of them behind a proxy serve more. Logs go where Django's settings send them.
"""

import sys

import uvicorn

from server.metrics_port import serve_if_asked


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
        timeout_graceful_shutdown=3,  # seconds; open event streams would hold it for ever
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
