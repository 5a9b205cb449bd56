"""Hook for Keras: the logs of `fit`, which every callback gets (keras 3.15)."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from .tracker_calls import CallRecorder, observe_calls

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted


def callbacks(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record the logs of batches and epochs at the number of batches trained so far. `CallbackList` reads all values
    for its callbacks anyway, perhaps in a thread of its own, and so does this (`_on_train_batch_end` in
    keras/src/callbacks/callback_list.py)."""
    recorder = CallRecorder("keras", pulse)
    done = before = 0  # batches, of all epochs and of the epochs before this one

    def on_epoch_begin(own: Any, epoch: int, *_: Any, **__: Any) -> None:
        nonlocal before
        before = done

    def on_train_batch_end(own: Any, batch: int, *_: Any, **__: Any) -> None:
        nonlocal done
        done = before + int(batch) + 1

    def process_batch_end(own: Any, batch: int, logs: Any = None) -> Noted:
        return recorder.record_values(logs or {}, before + int(batch) + 1)

    def on_epoch_end(own: Any, epoch: int, logs: Any = None) -> Noted:
        return recorder.record_values({"epoch": int(epoch) + 1, **(logs or {})}, done)

    has_threads = hasattr(module.CallbackList, "_on_train_batch_end")
    observe_calls(module.CallbackList, "on_epoch_begin", on_epoch_begin)
    observe_calls(module.CallbackList, "on_train_batch_end", on_train_batch_end)
    observe_calls(
        module.CallbackList, "_on_train_batch_end" if has_threads else "on_train_batch_end", process_batch_end
    )
    observe_calls(module.CallbackList, "on_epoch_end", on_epoch_end)
