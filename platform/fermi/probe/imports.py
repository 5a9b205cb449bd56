"""Calls hooks once a script has imported certain modules; imports none of them itself."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .rank import ProgressWriter

HOOKS = {
    "torch": "torch_hooks.steps torch_hooks.print_by_line facts.report_cuda",
    "torch.serialization": "torch_hooks.saves",
    "torch.distributed.checkpoint.state_dict_saver": "torch_hooks.saves_distributed",
    "torch.distributed.distributed_c10d": "torch_hooks.groups",
    "torch.distributed.rendezvous": "store_connect.soon",
    "torch._dynamo.callback": "torch_hooks.compiles",
    "safetensors.torch": "torch_hooks.saves_tensors",
    "deepspeed.runtime.engine": "torch_hooks.deepspeed",
    "horovod.torch.mpi_ops": "torch_hooks.horovod",
    "jax._src.clusters": "jax_hooks.joins",
    "transformers.trainer_callback": "transformers_hooks.progress transformers_hooks.logs",
    "jax.monitoring": "jax_hooks.compiles",
    "accelerate.accelerator": "accelerate_hooks.trackers",
    "aim.sdk.run": "other_tracker_hooks.aim",
    "clearml.logger": "other_tracker_hooks.clearml_logger",
    "clearml.task": "other_tracker_hooks.clearml_task",
    "comet_ml.experiment": "other_tracker_hooks.comet",
    "keras.src.callbacks.callback_list": "keras_hooks.callbacks",
    "lightning.fabric.loggers.csv_logs": "lightning_hooks.csv_logger",
    "lightning.pytorch.loggers.utilities": "lightning_hooks.hyperparameters",
    "lightning.pytorch.trainer.connectors.logger_connector.logger_connector": "lightning_hooks.metrics",
    "lightning_fabric.loggers.csv_logs": "lightning_hooks.csv_logger",
    "mlflow.tracking._tracking_service.client": "mlflow_hooks.client",
    "mlflow.tracking._tracking_service.utils": "mlflow_hooks.tracking_uri",
    "mlflow.tracking.client": "mlflow_hooks.artifacts",
    "mlflow.tracking.fluent": "mlflow_hooks.fluent",
    "mlflow.utils.rest_utils": "mlflow_hooks.requests",
    "pytorch_lightning.loggers.utilities": "lightning_hooks.hyperparameters",
    "pytorch_lightning.trainer.connectors.logger_connector.logger_connector": "lightning_hooks.metrics",
    "swanlab.sdk.cmd.init": "other_tracker_hooks.swanlab_offline",
    "swanlab.sdk.internal.run": "other_tracker_hooks.swanlab_runs",
    "swanlab.sdk.internal.run.components.config": "other_tracker_hooks.swanlab_config",
    "tensorboardX.writer": "tensorboard_hooks.writer",
    "torch.utils.tensorboard.writer": "tensorboard_hooks.writer",
    "trackio.run": "other_tracker_hooks.trackio",
    "wandb.env": "wandb_hooks.folder",
    "wandb.sdk.lib.apikey": "wandb_hooks.offline_before_0_22",
    "wandb.sdk.lib.noop_run": "wandb_hooks.disabled_runs",
    "wandb.sdk.lib.wbauth.prompt": "wandb_hooks.offline",
    "wandb.sdk.wandb_config": "wandb_hooks.config",
    "wandb.sdk.wandb_init": "wandb_runs.runs",
    "wandb.sdk.wandb_run": "wandb_hooks.runs",
    "wandb.sdk.wandb_summary": "wandb_hooks.summary",
}
"""Module -> functions that are called with the writer and the module, in this order, once it has been imported."""


def watch_imports(pulse: ProgressWriter) -> None:
    """Call the hooks of imported modules now, and of others on import."""
    for name in HOOKS:
        if name in sys.modules:  # in a rank that is forked
            _call_hooks(name, pulse, sys.modules[name])
    sys.meta_path.insert(0, _Finder(pulse))


def _call_hooks(name: str, pulse: ProgressWriter, module: ModuleType) -> None:
    for called in HOOKS[name].split():
        try:
            where, _, function = called.partition(".")
            getattr(import_module(f".{where}", __package__), function)(pulse, module)
        except Exception:
            pass


class _Finder:
    """Hooks the loaders of modules that other finders find."""

    def __init__(self, pulse: ProgressWriter) -> None:
        self.pulse = pulse
        self.wanted = {name for name in HOOKS if name not in sys.modules}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.wanted:
            return None
        self.wanted.discard(name)
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                try:
                    _hook_loader(name, spec, self.pulse)
                except Exception:
                    pass
                return spec
        return None


def _hook_loader(name: str, spec: ModuleSpec, pulse: ProgressWriter) -> None:
    """Replace the loader's `exec_module` for this module only: sources are still found through it."""
    loader: Any = spec.loader
    load: Callable[[ModuleType], None] = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # the instance's
        load(module)
        _call_hooks(name, pulse, module)

    loader.exec_module = exec_module
