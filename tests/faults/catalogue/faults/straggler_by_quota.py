"""A container gets a fraction of a processor: one rank computes slowly and all wait for it."""

from tests.faults.catalogue import cgroups
from tests.faults.catalogue.fault import Expected, Fault, Scene


def slow_down(scene: Scene) -> None:
    scene.reached("training")
    scene.ground.group(scene, cpu="0.05").add(scene.pid(2))
    scene.stamp()


FAULT = Fault(
    """
from gang import Gang, reached, torch

gang, work = Gang(pace=0.08), torch.randn(200, 200)
for step in range(5000):
    for _ in range(200):
        work = torch.tanh(work @ work)
    gang.step()
    if step == 80:
        reached("training")
""",
    Expected("STRAGGLER", rank=2, node=1),
    gpus=(2, 1),
    inject=slow_down,
    ends=(),
    needs=cgroups.missing,
)
