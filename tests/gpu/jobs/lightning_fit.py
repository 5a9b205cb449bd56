"""Trains a small model with Lightning, as users write it: nothing of it knows the platform."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import lightning as pl  # type: ignore[import-not-found, unused-ignore]
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x).squeeze(1), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Say(Callback):
    def __init__(self, delay: float) -> None:
        self.delay = delay

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        about = {"device": str(module.device), "world": trainer.world_size, "from": trainer.global_step}
        module.print(json.dumps({**about, "strategy": type(trainer.strategy).__name__}), flush=True)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        time.sleep(self.delay)
        if trainer.global_step % 5 == 0:
            module.print(json.dumps({"step": trainer.global_step, "loss": float(outputs["loss"])}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--delay", type=float, default=0.0)
    args = parser.parse_args()
    pl.seed_everything(0)
    x = torch.randn(2048, 32)
    loader = DataLoader(TensorDataset(x, x.sum(1) / 4), batch_size=64, shuffle=True)
    keep = ModelCheckpoint(dirpath=args.output, every_n_train_steps=10, save_last=True, save_top_k=1)
    trainer = pl.Trainer(
        accelerator="auto", devices="auto", num_nodes=1, max_steps=args.steps, max_epochs=-1, logger=False,
        callbacks=[keep, Say(args.delay)], enable_progress_bar=False,
        precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path="last")
    if trainer.is_global_zero:
        print(json.dumps({"done": trainer.global_step}), flush=True)


if __name__ == "__main__":
    main()
