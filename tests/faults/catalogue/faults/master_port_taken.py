"""Another process of the first node listens on the port that the ranks are to meet at, on a host with addresses of its
own, where nobody else's ports are known before."""

import socket

from tests.faults.catalogue.fault import Expected, Fault, Scene


def begin(scene: Scene) -> list[str]:
    ids = scene.ground.on_kubernetes(scene)
    port = scene.request["distributedConfig"]["masterPort"]
    scene.after.enter_context(socket.create_server(("", port)))
    return ids


def wait(scene: Scene) -> None:
    scene.until(lambda: scene.task()["attempts"], what="its first attempt")
    scene.stamp()


FAULT = Fault(
    """
from gang import Gang

gang = Gang()
""",
    Expected("MASTER_PORT_TAKEN", node=0, says=["port", "pid"]),
    environments=begin,
    inject=wait,
    ends=(),  # such an end is nobody's fault, so it is tried again
)
