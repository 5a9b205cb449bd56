"""Hooks for Lightning: what `self.log` collects when it is logged, with any logger and with none (lightning 2.6; the
packages `lightning` and `pytorch_lightning` have the same modules)."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .tracker_calls import CallRecorder, is_on_host, observe_calls

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted

SOURCE = "lightning"


def metrics(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record metrics on global rank 0, as loggers do, at the step that loggers get (`log_metrics` in
    logger_connector.py). Without a logger Lightning reads no values but those of the progress bar, so of a GPU's
    values these are recorded."""
    recorder = CallRecorder(SOURCE, pulse, separator="/")

    def log_metrics(own: Any, metrics: Mapping[str, Any], step: Any = None) -> Noted:
        trainer = own.trainer
        if not trainer.is_global_zero or not metrics or getattr(trainer, "sanity_checking", False):
            return None
        values = dict(metrics)
        if not trainer.loggers:
            shown = own._progress_bar_metrics
            values = {
                name: value if is_on_host(value) else shown[name]
                for name, value in values.items()
                if is_on_host(value) or name in shown
            }
        if step is None and "step" not in values:
            values.setdefault("epoch", trainer.current_epoch)
            step = trainer.fit_loop.epoch_loop._batches_that_stepped
        return recorder.record_values(values, step)

    observe_calls(module._LoggerConnector, "log_metrics", log_metrics)


def hyperparameters(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what `save_hyperparameters` has kept of the module and the data module, when loggers are given it
    (lightning/pytorch/loggers/utilities.py)."""
    recorder = CallRecorder(SOURCE, pulse)

    def log_hyperparams(trainer: Any) -> None:
        for place in (trainer.datamodule, trainer.lightning_module):
            if trainer.is_global_zero and place is not None and place._log_hyperparams:
                recorder.record_parameters(dict(place.hparams_initial))

    observe_calls(module, "_log_hyperparams", log_hyperparams)


def csv_logger(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what a script gives a CSV logger of Fabric itself."""
    recorder = CallRecorder(SOURCE, pulse, separator="/")

    def log_metrics(own: Any, metrics_dict: Mapping[str, Any], step: Any = None) -> Noted:
        return recorder.record_values(metrics_dict, step)

    observe_calls(module._ExperimentWriter, "log_metrics", log_metrics)
