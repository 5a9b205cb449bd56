"""How long a rank waits for its batches while a GPU computes, with and without workers, mapped and in memory.

A pause stands in for the GPU's step. The file is dropped from the page cache before each round, like one that was never
read or that is larger than memory.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from bench.table import Figure
from fermi.train.train_ddp import Samples, World, parse_args

TOKENS, STEPS, COMPUTING = 256 << 20, 30, 0.05
BATCH = ["--batch_size=64", "--block_size=1024"]
LOADER_OPTIONS = {
    "num_workers 2": ["--num_workers=2"],
    "preload": ["--preload"],
    "both": ["--num_workers=2", "--preload"],
}


def measure() -> Iterator[Figure]:
    with TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder, "train.bin")
        with path.open("wb") as file:
            np.random.default_rng(0).integers(0, 256, TOKENS, np.uint16).tofile(file)
            os.fsync(file.fileno())
        plain = measure_wait(path, [])
        for name, words in LOADER_OPTIONS.items():
            yield Figure(
                f"wait for 64 x 1024 tokens, {name}", measure_wait(path, words) * 1000, "ms", plain * 1000, "neither"
            )


def measure_wait(path: Path, words: list[str]) -> float:
    """Return the median wait; the first steps, in which workers start, are left out."""
    args: argparse.Namespace = parse_args([f"--train_data_path={path}", *BATCH, *words])
    drop_page_cache(path)
    samples = Samples(str(path), args, World(0, 0, 1, torch.device("cpu"), distributed=False))
    samples.draw_ahead(range(1, STEPS + 1))
    found = []
    for step in range(1, STEPS + 1):
        began = time.perf_counter()
        samples.draw(step, 0)
        found.append(time.perf_counter() - began)
        time.sleep(COMPUTING)
    samples.draw_ahead(range(0))
    return median(found[5:])


def drop_page_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
