"""A small model that all ranks train together, as the helper module of anybody's project would have it."""

import os
import time

import torch
import torch.distributed as dist
from knowable import ATTEMPT, NODE, RANK, WORLD, knowable, reached, when
from torch import nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["ATTEMPT", "NODE", "RANK", "WORLD", "Gang", "compute", "dist", "knowable", "nn", "reached", "torch", "when"]


def compute(seconds):
    """What a GPU asks of its process meanwhile: a part of a processor."""
    until = time.time() + seconds
    while time.time() < until:
        begun = time.process_time()
        while time.process_time() - begun < 0.015:
            torch.randn(64, 64) @ torch.randn(64, 64)
        time.sleep(0.085)


class Gang:
    """`pace`: seconds of computing on a GPU that is not there."""

    def __init__(self, pace=0.05, model=None):
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.pace = pace
        self.model = DistributedDataParallel(model or nn.Linear(7, 7))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def batch(self):
        return torch.randn(4, 7)

    def step(self, batch=None):
        loss = self.model(self.batch() if batch is None else batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(self.pace)
        return loss.item()

    def save(self, step, folder=None):
        """As the platform asks scripts to tell of it."""
        import json

        folder = folder or os.environ["FERMI_CHECKPOINT_DIR"]
        path = os.path.join(folder, f"step_{step}.pt")
        torch.save({"step": step, "model": self.model.module.state_dict()}, path)
        print(json.dumps({"event": "checkpoint", "step": step, "path": path}), flush=True)
        return path
