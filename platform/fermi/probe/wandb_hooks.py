"""Hooks for Weights & Biases: what is logged, the run's configuration, and where runs go without an account (wandb
0.31; `offline_before_0_22` follows 0.19)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import tracker_media as media
from .tracker_calls import CallRecorder, iterate_items, latest_steps, observe_calls, replace_function

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted

SOURCE = "wandb"


def folder(pulse: ProgressWriter, env: ModuleType) -> None:
    """Keep runs in the output folder, so that those without an account can be sent later: the working folder may end
    with the attempt. What the script or its variables name counts."""
    output = os.environ.get("FERMI_OUTPUT_DIR", "")
    if output and not os.environ.get("WANDB_DIR") and os.access(output, os.W_OK):
        os.environ["WANDB_DIR"] = output


def offline(pulse: ProgressWriter, prompt: ModuleType) -> None:
    """Answer "offline" where wandb would ask for a key and there is no terminal: it has looked at WANDB_API_KEY, netrc
    and its settings by then (`authenticate_session` in wandb/sdk/lib/wbauth/authenticate.py). Not where the script
    insists on an account (`force`), or WANDB_MODE is set."""
    can_ask = prompt.term.can_use_terminput
    ask = prompt._prompt_api_key

    def answer(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("no_offline") or os.environ.get("WANDB_MODE") or can_ask():
            return ask(*args, **kwargs)
        return None

    replace_function(prompt, "_prompt_api_key", answer)


def offline_before_0_22(pulse: ProgressWriter, apikey: ModuleType) -> None:
    """Do the same in older versions, where False means that there is no terminal, and None that the user has chosen
    offline (`prompt_api_key` in wandb/sdk/lib/apikey.py)."""
    ask = apikey.prompt_api_key

    def answer(*args: Any, **kwargs: Any) -> Any:
        key = ask(*args, **kwargs)
        insists = kwargs.get("no_offline") or os.environ.get("WANDB_MODE")
        return None if key is False and not insists else key

    replace_function(apikey, "prompt_api_key", answer)


def runs(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what `wandb.log` and `run.log` are given."""
    recorder = CallRecorder(SOURCE, pulse)

    def log(run: Any, data: Any, step: Any = None, commit: bool | None = None, **_: Any) -> Noted:
        counter = getattr(run, "_local_step", None)
        counter = run._step if counter is None else counter  # before 0.20
        noted = recorder.record_values(data, step, counter)
        _save_media(recorder, data, step, counter)
        return noted

    observe_calls(module.Run, "log", log)


def disabled_runs(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what is logged with the mode "disabled", too: that is about W&B. It reads no values, so none is copied
    from a GPU."""
    recorder = CallRecorder(SOURCE, pulse)

    def log(run: Any, data: Any, step: Any = None, *_: Any, **__: Any) -> Noted:
        return recorder.record_values(data, step, waits=False)

    observe_calls(module.NoopRun, "log", log)


def config(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record the configuration as parameters: that of `wandb.init` and `config.update` (both sanitize a dictionary),
    and single values."""
    recorder = CallRecorder(SOURCE, pulse)

    def sanitize(config: Any, values: Any, *_: Any, **__: Any) -> None:
        recorder.record_parameters(values)

    def set_item(config: Any, key: str, value: Any) -> None:
        recorder.record_parameters({key: value})

    observe_calls(module.Config, "_sanitize_dict", sanitize)
    observe_calls(module.Config, "__setitem__", set_item)
    module.Config.__setattr__ = module.Config.__setitem__


def summary(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what a script writes into the summary, as `summary/<name>`: it may be the best of a curve, which is no
    point of it."""
    recorder = CallRecorder(SOURCE, pulse)

    def update(own: Any, values: Mapping[str, Any]) -> None:
        named = {f"summary/{name}": value for name, value in values.items()}
        recorder.record_values(named, latest_steps.get(SOURCE))

    observe_calls(module.Summary, "update", update)


def _save_media(recorder: CallRecorder, data: Mapping[str, Any], step: Any, counter: int) -> None:
    """Save wandb's own objects: an image is a file by now, tables and histograms have their data."""
    for name, value in iterate_items(data, recorder.separator):
        several: list[Any] = list(value)[: media.MAX_PER_CALL] if isinstance(value, (list, tuple)) else [value]
        for one in several:
            kind = type(one).__name__
            if not (isinstance(one, str) or type(one).__module__.startswith("wandb.")):
                continue
            at = recorder.find_step({}, step, counter)
            if isinstance(one, str):
                media.save_text(SOURCE, name, at, one)
            elif kind == "Image" and one._path:
                media.save_image_file(SOURCE, name, at, one._path)
            elif kind == "Table":
                media.save_table(SOURCE, name, at, one.columns, one.data)
            elif kind == "Histogram":
                media.save_histogram(SOURCE, name, at, one.bins, one.histogram)
