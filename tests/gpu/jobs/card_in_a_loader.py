"""Loads its data in forked workers that use the card, which the parent has used already."""

import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index)).cuda()  # here


print(torch.ones(4, device="cuda").sum().item(), flush=True)
print(json.dumps({"wrong": time.time()}), flush=True)
for batch in DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
    print(batch.shape, flush=True)
