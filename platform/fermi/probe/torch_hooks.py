"""Hooks for PyTorch, and what is built on it. Each function is called once its module has been imported.

A function that is replaced here appears in the traceback of an error inside it, and that is all that can be noticed.
Functions that `torch.compile` traces (collectives, `Module.train`) are not replaced.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import errors
from .collectives import CollectiveWatcher

if TYPE_CHECKING:
    from .rank import ProgressWriter

COMPILING, SAVING = 1, 4
MAX_NAME = 120
_FUNCTION = re.compile(r"'(.+)' \((.+):(\d+)\)$")

_engines: list[object] = []
"""DeepSpeed's engine that steps right now: steps of its optimizers, however many, are part of its own."""


def steps(pulse: ProgressWriter, torch: ModuleType) -> None:
    """Count steps of the optimizer that steps most: with several, another one leads once it has stepped twice since the
    leader did."""
    compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
    since: dict[int, int] = {}
    leader = 0

    def stepped(optimizer: object, args: object, kwargs: object) -> None:
        nonlocal leader
        if compiling():  # nothing of this belongs into the graph
            return
        caller = sys._getframe(2)
        if _engines or (caller.f_code.co_name == "step" and caller.f_locals.get("self") is optimizer):
            return  # Horovod's calls the one that it was made of, and both are hooked
        name = id(optimizer)
        if name != leader:
            since[name] = since.get(name, 0) + 1
            if leader and since[name] < 2:
                return
            leader = name
        since.clear()
        pulse.step()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(stepped)
    _replace_function(torch.nn.Module, "eval", functools.partial(_wrap_eval, pulse))


def print_by_line(pulse: ProgressWriter, torch: ModuleType) -> None:
    """Make C's stdout write each line at once. In a file it would write whole blocks: NCCL's output (its `src/debug.cc`
    prints to stdout, and sets line buffering for files of its own alone) would end in the middle of a line that Python
    goes on with, come too late, and be lost with a rank that is killed."""
    import ctypes  # torch has imported it

    libc = ctypes.CDLL(None)
    line_buffered = 1  # _IOLBF of glibc and musl
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, line_buffered, ctypes.c_size_t(0))


def _wrap_eval(pulse: ProgressWriter, function: Callable[..., Any]) -> Callable[..., Any]:
    def evaluates(self: Any) -> Any:
        if not compiling() and pulse.on_main_thread():
            pulse.evaluates()
        return function(self)

    compiling: Callable[[], bool] = sys.modules["torch"].compiler.is_dynamo_compiling
    return evaluates


def saves(pulse: ProgressWriter, serialization: ModuleType) -> None:
    """Report `torch.save` as the phase saving."""
    _replace_function(serialization, "save", functools.partial(_wrap_save, pulse), "torch")


def saves_distributed(pulse: ProgressWriter, saver: ModuleType) -> None:
    """Report distributed checkpoints as the phase saving."""
    _replace_function(saver, "save", functools.partial(_wrap_save, pulse), "torch.distributed.checkpoint")


def saves_tensors(pulse: ProgressWriter, safetensors: ModuleType) -> None:
    """Report safetensors files as the phase saving."""
    _replace_function(safetensors, "save_file", functools.partial(_wrap_save, pulse))


def _wrap_save(pulse: ProgressWriter, function: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> Any:
        if not pulse.on_main_thread():  # beside the training
            return function(*args, **kwargs)
        before = pulse.to(SAVING)
        try:
            return function(*args, **kwargs)
        finally:
            pulse.to(before)

    return save


def compiles(pulse: ProgressWriter, callback: ModuleType) -> None:
    """Report compilations, and functions that torch stops compiling."""
    before = 0

    def begins(*_: object) -> None:
        nonlocal before
        if pulse.on_main_thread():
            before = pulse.start_compiling()

    def ends(*_: object) -> None:
        if pulse.on_main_thread() and pulse.phase == COMPILING:
            pulse.finish_compiling(before)

    def gives_up(record: logging.LogRecord) -> bool:
        """Of the logger's filters: it takes nothing away. After `recompile_limit` versions of a function torch runs it
        without the compiler, and says so by this warning alone (torch/_dynamo/convert_frame.py, torch 2.13)."""
        if str(record.msg).startswith("torch._dynamo hit config") and isinstance(record.args, tuple) and pulse.owns():
            found = next(filter(None, (_FUNCTION.match(str(one)) for one in record.args)), None)
            what = f"{errors.make_relative(found[2])}:{found[3]} in {found[1]}" if found else "?"
            pulse.page.text("compiler", {"gave_up": what[-MAX_NAME:]})
        return True

    logging.getLogger("torch._dynamo.convert_frame").addFilter(gives_up)
    callback.callback_handler.register_start_callback(begins)
    callback.callback_handler.register_end_callback(ends)


def groups(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record process groups: the process that makes one trains."""
    watch: list[CollectiveWatcher] = []

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            size, rank = (*args, kwargs.get("group_size"), kwargs.get("group_rank"))[:2]
            pulse.meets(size, rank)
            if pulse.advance() and not (watch and watch[0].is_alive()):  # a fork leaves it behind
                watch[:] = [CollectiveWatcher(pulse)]
                watch[0].start()
            return function(*args, **kwargs)

        return made

    _replace_function(module, "_new_process_group_helper", make)


def deepspeed(pulse: ProgressWriter, engine: ModuleType) -> None:
    """Count one step of the engine, which may be many of its optimizer (ZeRO-3 steps it once for each group of
    parameters)."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            _engines.append(self)
            try:
                found = function(self, *args, **kwargs)
            finally:
                _engines.pop()
            if not _engines:
                pulse.step()
            return found

        return step

    _replace_function(engine.DeepSpeedEngine, "_take_model_step", make)


def horovod(pulse: ProgressWriter, mpi_ops: ModuleType) -> None:
    """Count synchronizations: Horovod works in its own thread, and a rank waits for it here."""
    from time import monotonic

    begun, waited = 0, 0.0

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            nonlocal begun, waited
            if not pulse.advance():
                return function(*args, **kwargs)
            page, began, begun = pulse.page, monotonic(), begun + 1
            page.number("begun", begun)
            page.moment("collective_at", began)
            found = function(*args, **kwargs)
            waited += monotonic() - began
            page.number("ended", begun)
            page.moment("waited", waited)
            page.moment("collective_at", 0.0)
            return found

        return synchronize

    _replace_function(mpi_ops, "synchronize", make)


def _replace_function(
    place: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], *also: str
) -> None:
    """Replace a function. `also`: modules that may have imported it already."""
    function = getattr(place, name)
    new = functools.wraps(function)(make(function))
    for one in (place, *(sys.modules.get(other) for other in also)):
        if getattr(one, name, None) is function:
            setattr(one, name, new)
