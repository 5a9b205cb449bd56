"""Hooks for Hugging Face's Trainer: report its progress (the lines that it prints have an epoch and no step), what it
logs, and its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .tracker_calls import CallRecorder, observe_calls

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted

EVENTS = ("on_train_begin", "on_step_end")
"""At the first the state has the checkpoint's values, at the second one step more; then the Trainer logs
(`CallbackHandler` in trainer_callback.py and `_inner_training_loop` in trainer.py, transformers 5.24)."""

WHOLE_TRAINING = (
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second", "train_loss",
    "total_flos",
)  # fmt: skip


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


def logs(pulse: ProgressWriter, callbacks: ModuleType) -> None:
    """Record what the Trainer logs, whatever it reports to, and its arguments. Only of the process with global rank 0,
    as its callbacks for trackers do. Values of the whole training, which it logs last, are no points: they are recorded
    as `summary/<name>`, as its callback for W&B does (transformers/integrations/integration_utils.py)."""
    recorder = CallRecorder("transformers", pulse)

    def on_log(own: Any, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> Noted:
        if not state.is_world_process_zero or not logs:
            return None
        named = {f"summary/{name}" if name in WHOLE_TRAINING else name: value for name, value in logs.items()}
        noted = recorder.record_values(named, state.global_step)
        return noted and {name.replace("summary_", "", 1): value for name, value in noted.items()}

    def on_train_begin(own: Any, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.is_world_process_zero:
            recorder.record_parameters(args)

    observe_calls(callbacks.CallbackHandler, "on_log", on_log)
    observe_calls(callbacks.CallbackHandler, "on_train_begin", on_train_begin)


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
