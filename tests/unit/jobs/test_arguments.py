"""What a command line gives to a script."""

import pytest

from fermi.jobs.arguments import list_named_arguments, parse_arguments
from fermi.jobs.spec import Entrypoint


def test_words_of_a_command_have_names() -> None:
    words = ["--lr", "0.1", "--amp", "--batch-size=64", "train", "model.depth=3", "--path", "/x", "-v"]
    assert parse_arguments(words) == {
        "lr": "0.1", "amp": "true", "batch_size": "64", "argument 1": "train", "model.depth": "3", "path": "/x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entrypoint", "found"),
    [
        (Entrypoint(script="train.py", args=("--lr", "0.1", "data")), {"lr": "0.1"}),
        (Entrypoint(module="pkg.train", args=("model.depth=3",)), {"model.depth": "3"}),
        (Entrypoint(command=("python", "-u", "train.py", "--amp")), {"amp": "true"}),
        (Entrypoint(command=("torchrun", "--nproc-per-node", "2", "train.py"), args=("--lr=1e-3",)), {"lr": "1e-3"}),
        (Entrypoint(command=("python", "-m", "torch.distributed.run", "--nnodes=2", "-m", "t", "--lr=1")), {"lr": "1"}),
        (Entrypoint(command=("python", "-m")), {}),
        (Entrypoint(command=("train", "--lr", "-0.5")), {"lr": "-0.5"}),
        (Entrypoint(script="train.py"), {}),
    ],
)  # fmt: skip
def test_arguments_of_a_launcher_are_none_of_the_script(entrypoint: Entrypoint, found: dict[str, str]) -> None:
    assert list_named_arguments(entrypoint) == found
