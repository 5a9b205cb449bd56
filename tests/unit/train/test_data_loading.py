"""Batches that worker processes make ready, and data in memory: the same samples, sooner."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from fermi.train import common
from tests.lazy import lazy_import

torch, train_ddp = lazy_import("torch"), lazy_import("fermi.train.train_ddp")


def test_loader_processes_and_preloading_change_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(np.random.default_rng(0).integers(0, 256, 4096, np.uint16).tobytes())
    words = [f"--train_data_path={path}", "--block_size=8", "--batch_size=3", "--gradient_accumulation_steps=2"]
    world = train_ddp.World(1, 1, 2, torch.device("cpu"), distributed=True)
    plain = train_ddp.Samples(str(path), train_ddp.parse_args(words), world)
    ahead = train_ddp.Samples(str(path), train_ddp.parse_args([*words, "--num_workers=2", "--preload"]), world)
    ahead.draw_ahead(range(4, 7))
    assert len(multiprocessing.active_children()) == 2
    for step in (4, 5, 6):
        for micro_step in (0, 1):
            for mine, theirs in zip(ahead.draw(step, micro_step), plain.draw(step, micro_step), strict=True):
                assert torch.equal(mine, theirs)
    ahead.draw_ahead(range(0))
    assert multiprocessing.active_children() == []
    numpy_s = common.Samples(str(path), train_ddp.parse_args([*words, "--preload"]), 1, 2)
    assert (numpy_s.draw(6, 1)[:, 1:] == plain.draw(6, 1)[1].numpy()).all()


@pytest.mark.parametrize("above", [256, 32_768, 65_536])
def test_the_largest_token_is_found_among_the_first_million(tmp_path: Path, above: int) -> None:
    tokens = np.random.default_rng(above).integers(0, above, (1 << 20) + 7, np.uint16)
    tokens[1 << 20 :] = 65_535
    path = tmp_path / "train.bin"
    path.write_bytes(tokens.tobytes())
    largest = int(tokens[: 1 << 20].max())
    fits = train_ddp.parse_args([f"--train_data_path={path}", f"--vocab_size={largest + 1}"])
    assert len(train_ddp.map_tokens(str(path), fits)) == len(tokens)
    too_small = train_ddp.parse_args([f"--train_data_path={path}", f"--vocab_size={largest}"])
    with pytest.raises(train_ddp.ConfigError, match=f"has the token {largest}: "):
        train_ddp.map_tokens(str(path), too_small)


def test_defaults_come_from_the_environment_at_call_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("a.bin", "b.bin"):
        monkeypatch.setenv("FERMI_TRAIN_DATA", path)
        monkeypatch.setenv("FERMI_TIMEOUT_SECONDS", "7")
        args = train_ddp.parse_args([])
        assert (args.train_data_path, args.timeout_seconds, args.checkpoint_dir) == (path, 7, "checkpoints")
    monkeypatch.delenv("FERMI_TRAIN_DATA")
    with pytest.raises(train_ddp.ConfigError, match="--train_data_path is missing"):
        train_ddp.parse_args([])
