"""Weights & Biases wants a key."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import RANK, knowable, when

if RANK == 0:
    import wandb
    knowable()
    wandb.init(project="llm")  # here
when("never")
""",
    Expected("RANK_FAILED", rank=0, node=0, says=["api_key not configured", "WANDB_API_KEY"]),
    files={
        "wandb/__init__.py": "from wandb.errors import UsageError\ndef init(**_):\n"
        "    raise UsageError('api_key not configured (no-tty). call wandb.login(key=[your_api_key])')\n",
        "wandb/errors.py": "class UsageError(Exception):\n    pass\n",
    },
)
