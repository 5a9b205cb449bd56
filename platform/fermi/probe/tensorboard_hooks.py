"""Hooks for TensorBoard's writers: `torch.utils.tensorboard` (torch 2.13) and tensorboardX (2.6)."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import tracker_media as media
from .tracker_calls import STEP_NAMES, CallRecorder, observe_calls

if TYPE_CHECKING:
    from .rank import ProgressWriter
    from .tracker_calls import Noted

SOURCE = "tensorboard"
_TEXT_SUFFIX = "/text_summary"
"""Of the tags of texts (`text` in torch/utils/tensorboard/summary.py)."""

LIGHTNINGS_PLACEHOLDER = ("hp_metric", -1)
"""Lightning's logger adds it for TensorBoard's table of hyperparameters (lightning/pytorch/loggers/tensorboard.py)."""


def writer(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record scalars and hyperparameters as they are given, images, histograms and texts as they are written: by then
    an image is a file's content."""
    recorder = CallRecorder(SOURCE, pulse, separator="/")

    def add_scalar(own: Any, tag: Any, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any) -> Noted:
        if (tag, scalar_value) == LIGHTNINGS_PLACEHOLDER or tag in STEP_NAMES:
            return None
        return recorder.record_value(str(tag), scalar_value, global_step)

    def add_scalars(own: Any, main_tag: Any, tag_scalar_dict: Any, global_step: Any = None, *_: Any,
                    **__: Any) -> None:  # fmt: skip
        for tag, value in tag_scalar_dict.items():
            recorder.record_value(f"{main_tag}/{tag}", value, global_step)

    def add_hparams(own: Any, hparam_dict: Any, *_: Any, **__: Any) -> None:
        recorder.record_parameters(hparam_dict)  # its metrics are added as scalars

    def add_summary(own: Any, summary: Any, global_step: Any = None, *_: Any, **__: Any) -> Noted:
        for value in summary.value:
            kind = value.WhichOneof("value")
            if kind not in ("image", "histo", "tensor"):
                continue
            step = recorder.find_step({}, global_step, 0)
            if kind == "image":
                media.save_media(SOURCE, "image", value.tag, step, value.image.encoded_image_string, ".png")
            elif kind == "histo":
                limits = list(value.histo.bucket_limit)
                media.save_histogram(SOURCE, value.tag, step, [value.histo.min, *limits], value.histo.bucket)
            elif value.tag.endswith(_TEXT_SUFFIX) and value.tensor.string_val:
                text = value.tensor.string_val[0].decode(errors="replace")
                media.save_text(SOURCE, value.tag[: -len(_TEXT_SUFFIX)], step, text)
        return None

    observe_calls(module.SummaryWriter, "add_scalar", add_scalar)
    observe_calls(module.SummaryWriter, "add_scalars", add_scalars)
    observe_calls(module.SummaryWriter, "add_hparams", add_hparams)
    observe_calls(module.FileWriter, "add_summary", add_summary)
