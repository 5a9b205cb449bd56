"""A host loses its power."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.link_dead import SCRIPT


def begin(scene: Scene) -> list[str]:
    site, ids = scene.ground.hosts(scene, 2)
    scene.site = site
    return ids


def lose(scene: Scene) -> None:
    scene.reached("training", 120)
    scene.site.lab.run(1, "ip", "link", "set", "eth0", "down")
    scene.stamp()
    scene.site.lose(1)


FAULT = Fault(
    SCRIPT,
    Expected("WORKER_LOST|NODE_LOST|ENVIRONMENT_UNAVAILABLE", node=1),
    environments=begin,
    inject=lose,
    needs=netlab.missing,
)
