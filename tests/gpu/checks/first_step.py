"""How soon the first optimizer step comes, and what of that is CUDA's."""

from __future__ import annotations

from tests.gpu.check import check
from tests.gpu.context import Context


@check("an unchanged DDP script trains as a task of this machine", limit=90)
def plain_script(context: Context) -> None:
    task = context.train(context.job("plain_ddp.py"))
    told = context.printed(task["taskId"], "first_step")
    device = told["device"]
    context.expect(device == ("cuda:0" if context.machine.cuda else "cpu"), f"it trained on {device}")
    context.figure("device", device)
    context.figure("context", told["context"] - told["imported"], "s")
    context.figure("group", told["met"] - told["context"], "s")
    context.figure("first step after its start", told["first_step"] - told["began"], "s")
