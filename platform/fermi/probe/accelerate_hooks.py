"""Hooks for Hugging Face Accelerate: `Accelerator.log`, whichever trackers it passes values on to, also with none
(accelerate 1.15)."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from .tracker_calls import CallRecorder, observe_calls

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted


def trackers(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record values and configuration on the main process, as Accelerate does (`on_main_process` in
    accelerate/accelerator.py)."""
    recorder = CallRecorder("accelerate", pulse)

    def log(own: Any, values: Any, step: Any = None, *_: Any, **__: Any) -> Noted:
        if not own.is_main_process:
            return None
        return recorder.record_values(values, step, waits=bool(own.trackers))

    def init_trackers(own: Any, project_name: Any, config: Any = None, *_: Any, **__: Any) -> None:
        if config is not None and own.is_main_process:
            recorder.record_parameters(config)

    observe_calls(module.Accelerator, "log", log)
    observe_calls(module.Accelerator, "init_trackers", init_trackers)
