"""Hooks for SwanLab (0.10), Trackio (0.43), Aim (3.29), Comet (3.58) and ClearML (2.1)."""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import tracker_media as media
from .tracker_calls import CallRecorder, observe_calls, replace_function

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted


def swanlab_runs(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what `swanlab.log` and `run.log` are given."""
    recorder = CallRecorder("swanlab", pulse, separator="/")

    def log(run: Any, data: Any, step: Any = None) -> Noted:
        return recorder.record_values(data, step, run._ctx._global_step + 1)

    observe_calls(module.Run, "log", log)


def swanlab_config(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record the configuration."""
    recorder = CallRecorder("swanlab", pulse)

    def set_value(config: Any, key: str, value: Any) -> None:
        recorder.record_parameters({key: value})

    observe_calls(module.Config, "_set_value", set_value)


def swanlab_offline(pulse: ProgressWriter, module: ModuleType) -> None:
    """Go on offline where SwanLab has no key and cannot ask for one, unless SWANLAB_MODE is set: it would raise
    RuntimeError (`prompt_init_mode` in swanlab/sdk/cmd/init.py)."""
    find_mode = module.prompt_init_mode

    def find_mode_or_offline(settings: Any) -> Any:
        try:
            return find_mode(settings)
        except RuntimeError:
            if settings.api_key is not None or os.environ.get("SWANLAB_MODE"):
                raise
            return "offline"

    replace_function(module, "prompt_init_mode", find_mode_or_offline)


def trackio(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what `trackio.log` and `run.log` are given, and the run's configuration."""
    recorder = CallRecorder("trackio", pulse)

    def begin(run: Any, *_: Any, config: Any = None, **__: Any) -> None:
        if config:
            recorder.record_parameters(config)

    def log(run: Any, metrics: Any, step: Any = None) -> Noted:
        return recorder.record_values(metrics, step, run._next_step)

    observe_calls(module.Run, "__init__", begin)
    observe_calls(module.Run, "log", log)


def aim(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record tracked numbers and texts, with the context before the name (`{"subset": "val"}`: `val/loss`), and a run's
    parameters."""
    recorder = CallRecorder("aim", pulse)

    def track(run: Any, value: Any, name: Any = None, step: Any = None, epoch: Any = None, *, context: Any = None,
              **_: Any) -> None:  # fmt: skip
        parts = [*map(str, (context or {}).values())] if isinstance(context, dict) else []
        if isinstance(value, dict):
            recorder.record_values({"/".join([*parts, str(key)]): one for key, one in value.items()}, step)
            return
        full = "/".join([*parts, str(name)])
        if type(value).__name__ == "Text" and type(value).__module__.startswith("aim."):
            media.save_text("aim", full, recorder.find_step({}, step), value.data)
        else:
            recorder.record_value(full, value, step)

    def set_item(run: Any, key: Any, value: Any) -> None:
        name = "" if key is Ellipsis or key == "hparams" else str(key)
        recorder.record_parameters(value if name == "" else {name: value})

    observe_calls(module.BasicRun, "track", track)
    observe_calls(module.BasicRun, "__setitem__", set_item)


def comet(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record metrics and parameters, those of Comet's own logging of frameworks among them. Not what it measures of the
    machine, and not what it has from TensorBoard's writers, which have hooks of their own."""
    recorder = CallRecorder("comet", pulse)
    others = ("comet", "tensorboard", "pytorch-tensorboard")

    def log_metric(own: Any, name: Any, value: Any, step: Any = None, epoch: Any = None, include_context: bool = True,
                   framework: Any = None, **_: Any) -> None:  # fmt: skip
        if framework not in others and name != "process duration":
            full = own._fullname(str(name), include_context=include_context)
            recorder.record_value(full, value, own.curr_step if step is None else step)

    def log_parameter(own: Any, name: Any, value: Any, *_: Any, **__: Any) -> None:
        if name != "curr_step":
            recorder.record_parameters({str(name): value})

    observe_calls(module.CometExperiment, "_log_metric", log_metric)
    observe_calls(module.CometExperiment, "_log_parameter", log_parameter)


def clearml_logger(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record scalars as `title/series`, or the title alone where both are the same."""
    recorder = CallRecorder("clearml", pulse)
    no_step = -(2**31)  # of `report_single_value`

    def report_scalar(own: Any, title: Any, series: Any, value: Any, iteration: Any) -> None:
        if iteration == no_step:
            recorder.record_value(f"summary/{series}", value)
        else:
            recorder.record_value(str(title) if title == series else f"{title}/{series}", value, iteration)

    observe_calls(module.Logger, "report_scalar", report_scalar)


def clearml_task(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what is connected to a task as its parameters."""
    recorder = CallRecorder("clearml", pulse)

    def connect(own: Any, mutable: Any, *_: Any, **__: Any) -> None:
        recorder.record_parameters(mutable)

    observe_calls(module.Task, "connect", connect)
