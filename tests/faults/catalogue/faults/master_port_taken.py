"""Another process of the first node listens on the port that the task insists on."""

import socket

from tests.faults.catalogue.fault import Expected, Fault, Scene


def take(scene: Scene) -> list[str]:
    holder = scene.after.enter_context(socket.create_server(("0.0.0.0", 0)))
    port = holder.getsockname()[1]
    ids = scene.ground.environments(scene, (1, 1))
    config = {"nodeIds": ids, "masterNode": ids[0], "framework": "ddp", "masterPort": port}
    scene.request["distributedConfig"] = config
    scene.stamp()
    return ids


FAULT = Fault(
    """
from gang import Gang

gang = Gang()
""",
    Expected("MASTER_PORT_TAKEN|PORTS_TAKEN", node=0, says=["port"]),
    environments=take,
    ends=(),
)
