"""Runs trainers of ours one after the other and prints what each came to: speeds, losses and the peak of the card's
memory, which no trainer prints. Not a user's script: it imports them. `measured.py RUNS.json`, see `training.Measured`.

Models are made on the card at once, which takes a tenth of the time; nothing is saved.
"""

import gc
import importlib
import json
import sys
import time
import traceback
from typing import Any

import torch

from fermi.train import train_ddp


def make_on_device(gpt: Any) -> Any:
    def make(args: Any) -> Any:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            return gpt(args)

    return make


def run(trainer: str, words: list[str]) -> dict[str, Any]:
    """Returns what the trainer printed, in short, and how much memory it took at most."""
    module, told = importlib.import_module(trainer), list[dict[str, Any]]()

    def say(line: str) -> None:
        print("  " + line, flush=True)  # indented: none of the platform's points
        if line.startswith("{"):
            told.append(json.loads(line))

    class Measured(module.Trainer):  # type: ignore[name-defined]
        def save(self, last: bool, measured: dict[str, float]) -> None:
            pass

    Measured.__module__ = module.__name__
    train_ddp.print_line = say
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    code = train_ddp.main(words, Measured)
    points = [one for one in told if "loss" in one]
    started = next((one for one in told if one.get("event") == "started"), {})
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0
    return {
        "code": code,
        "seconds": round(time.monotonic() - began, 2),
        "losses": [one["loss"] for one in points],
        "speeds": [one["tokens_per_s"] for one in points],
        "parameters": started.get("parameters"),
        "device": started.get("device"),
        "dtype": started.get("dtype"),
        "peak_gib": peak,
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30 if on_gpu else 0.0,
    }


def main() -> None:
    train_ddp.GPT = make_on_device(train_ddp.GPT)  # type: ignore[misc]
    if torch.cuda.is_available():
        torch.cuda.init()  # statistics of memory want it
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)
    for one in runs:
        try:
            row = run(one["trainer"], one["words"])
        except BaseException as error:
            traceback.print_exc()
            row = {"code": 1, "why": f"{type(error).__name__}: {error}"[:600]}
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        gc.unfreeze()  # the trainer freezes what it has made, and the next one is to have that memory
        gc.collect()
        left = torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
        print(json.dumps({"measured": one["label"], **row, "left_gib": round(left, 3)}), flush=True)


if __name__ == "__main__":
    main()
