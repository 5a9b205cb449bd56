"""Trains a GPT-2 from scratch with transformers' Trainer, as users write it: nothing of it knows the platform."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint  # type: ignore[import-not-found, unused-ignore]


class Counting(torch.utils.data.Dataset[dict[str, Any]]):
    """Sequences that count up, from wherever."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = (torch.arange(32) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=args.width, n_layer=2, n_head=4)
    on_gpu = torch.cuda.is_available()
    told = TrainingArguments(
        output_dir=str(args.output), max_steps=args.steps, per_device_train_batch_size=args.batch, logging_steps=5,
        save_steps=20, learning_rate=1e-3, bf16=on_gpu, report_to=[],
    )  # fmt: skip
    trainer = Trainer(model=GPT2LMHeadModel(config), args=told, train_dataset=Counting())
    last = get_last_checkpoint(str(args.output)) if args.output.exists() else None
    trainer.train(resume_from_checkpoint=last)
    about = {"device": str(trainer.model.device), "world": told.world_size, "ended": trainer.state.global_step}
    about |= {"resumed": last or "", "history": trainer.state.log_history[-2:]}
    print(json.dumps(about), flush=True)


if __name__ == "__main__":
    main()
