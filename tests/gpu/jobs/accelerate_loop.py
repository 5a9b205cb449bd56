"""Trains a small language model with Accelerate, as users write it: nothing of it knows the platform."""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from accelerate import Accelerator  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(64, width), nn.Linear(width, 64)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.token(tokens), mask=mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    accelerator = Accelerator(mixed_precision="bf16")
    torch.manual_seed(0)
    model = Model(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = torch.randint(0, 64, (512, 1))
    data = TensorDataset((start + torch.arange(33)) % 64)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step, folder = 0, args.output / "state"
    if folder.exists():
        accelerator.load_state(str(folder))
        step = json.loads((args.output / "step.json").read_text())
        accelerator.print(f"goes on from step {step}")
    parameter = next(model.parameters())
    about = {"device": str(accelerator.device), "weights_on": str(parameter.device), "from": step}
    about |= {"precision": accelerator.mixed_precision, "kind": accelerator.distributed_type.value}
    accelerator.print(json.dumps(about), flush=True)
    while step < args.steps:
        for (tokens,) in loader:
            with accelerator.accumulate(model):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % 5 == 0:
                mean = accelerator.gather(loss.detach()).mean().item()
                accelerator.print(json.dumps({"step": step, "loss": mean}), flush=True)
            if step == args.steps:
                break
    accelerator.save_state(str(folder))
    if accelerator.is_main_process:
        (args.output / "step.json").write_text(json.dumps(step))
    accelerator.end_training()


if __name__ == "__main__":
    main()
