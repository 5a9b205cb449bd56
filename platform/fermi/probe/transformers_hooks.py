"""Hook for Hugging Face's Trainer: reports its progress. The lines that it prints have an epoch and no step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rank import ProgressWriter

EVENTS = ("on_train_begin", "on_step_end")
"""At the first the state has the checkpoint's values, at the second one step more; then the Trainer logs
(`CallbackHandler` in trainer_callback.py and `_inner_training_loop` in trainer.py, transformers 5.24)."""


def progress(pulse: ProgressWriter, callbacks: ModuleType) -> None:
    """Write the Trainer's state into the page at these events."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def told(self: Any, args: Any, state: Any, *others: Any, **named: Any) -> Any:
            try:
                if pulse.owns():
                    pulse.page.text("trainer", read_state(args, state))
            except Exception:  # another version than those that are known
                pass
            return function(self, args, state, *others, **named)

        return told

    for name in EVENTS:
        setattr(callbacks.CallbackHandler, name, make(getattr(callbacks.CallbackHandler, name)))


def read_state(args: Any, state: Any) -> dict[str, Any]:
    """Return the `step`, of `total`, the `epoch`, and `every` how many steps a line is logged (0: not by steps)."""
    by_steps = getattr(args.logging_strategy, "value", args.logging_strategy) == "steps"
    every = getattr(state, "logging_steps", args.logging_steps)  # older ones have it in the arguments alone
    return {
        "step": state.global_step,
        "total": max(state.max_steps, 0),
        "epoch": float(state.epoch or 0.0),
        "every": int(every) if by_steps else 0,
    }
