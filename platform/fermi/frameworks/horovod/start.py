"""Becomes one rank of a Horovod job: `python horovod_start.py [-m] SCRIPT ARGUMENTS…`, in the environment of its rank.

Rank 0 serves the rendezvous from within its own process, so that it begins before and ends with the job, and no
`horovodrun` and no ssh is needed. The other ranks wait until it answers: Horovod itself tries three times in a second
and a half (http_store.h) and then gives the job up.

Needs Horovod and the standard library; rendered into the files of the plan.
"""

import os
import runpy
import socket
import sys
import threading
import time


def serve(port: int, hosts: str, processes: int) -> None:
    """Horovod's rendezvous server for `hosts` (`name:slots,…` in the order of ranks)."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    class Server(RendezvousHTTPServer):
        daemon_threads = True
        request_queue_size = 4096  # all ranks ask at once; what the queue of 5 turns away comes again a second later

    server = Server(("", port), RendezvousHandler, False)
    server.init(get_host_assignments(parse_hosts(hosts), processes))
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()


def wait_for(address: tuple[str, int], seconds: int) -> None:
    """Until something listens at `address`. Ends the process when nothing does in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(address, timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"horovod_start: no rendezvous at {address[0]}:{address[1]} within {seconds} s: {error}")
            time.sleep(0.1)


def become(words: list[str]) -> None:
    """What `python [-m] …` would run, as this process's `__main__`."""
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def main(words: list[str]) -> None:
    env = os.environ
    address = env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if interfaces := env.get("GLOO_SOCKET_IFNAME"):
        env.setdefault("HOROVOD_GLOO_IFACE", interfaces.split(",")[0])
    if env["HOROVOD_RANK"] == "0":
        if timeline := env.get("HOROVOD_TIMELINE"):
            os.makedirs(os.path.dirname(os.path.abspath(timeline)), exist_ok=True)
        serve(address[1], env["FERMI_HOROVOD_HOSTS"], int(env["HOROVOD_SIZE"]))
    else:
        wait_for(address, int(env["HOROVOD_GLOO_TIMEOUT_SECONDS"]))
    become(words)


if __name__ == "__main__":
    main(sys.argv[1:])
