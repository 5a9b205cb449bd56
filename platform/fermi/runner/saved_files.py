"""Reads what a file that a training script saved is, from a few of its bytes: nothing is unpickled, and no tensor is
read. Standard library only, Python 3.9 or later.

torch          a zip archive (`torch.save`, `PyTorchFileWriter` of `caffe2/serialize/inline_container.cc`): complete
               once its directory, which is written last, is there. `data.pkl` has the names and numbers beside the
               tensors; only its opcodes are looked at (`pickletools`)
safetensors    eight bytes with the length of a JSON header, the header, the tensors (the format's README.md):
               complete if the file ends where the last tensor does
HDF5, .keras   the end of the file as its superblock states it (HDF5 File Format Specification, III.A); a zip archive
"""

from __future__ import annotations

import json
import pickletools
import re
import struct
import zipfile
from typing import Any, BinaryIO, NamedTuple

MAX_DIRECTORY_BYTES = 16 << 20
"""Of a zip archive's directory: one with more is not read."""
MAX_PICKLE_BYTES = 4 << 20
MAX_OPCODES = 400_000
MAX_HEADER_BYTES = 64 << 20
"""Of a safetensors file's header; the format allows 100 MB."""
END_RECORD, END_RECORD_BYTES, MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 1 << 16
TORCH_LEGACY_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""How files begin that `torch.save` wrote before its zip format: `MAGIC_NUMBER` of `torch/serialization.py`, pickled
with protocol 2."""
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"

STEP_NAMES = (
    "global_step", "global_steps", "iter_num", "step", "steps", "iteration", "iterations", "iter", "num_updates",
    "num_steps", "train_step", "train_steps", "completed_steps", "current_step", "step_num", "it",
)  # fmt: skip
"""Names under which scripts save the step, the more certain ones first: `global_step` is Lightning's
(`lightning/pytorch/trainer/connectors/checkpoint_connector.py`), `iter_num` nanoGPT's (`train.py`), `iteration`
Megatron-LM's and Detectron2's, `iter` in `meta` MMEngine's (`mmengine/runner/runner.py`)."""
EPOCH_NAMES = ("epoch", "epochs", "current_epoch", "epochs_run")
COUNTER_FOLDERS = ("meta", "extra_state", "state", "train_state", "trainer", "progress", "metadata")
"""Dictionaries in which the step may be one level down."""
METRIC_NAMES = ("val_loss", "best_val_loss", "valid_loss", "eval_loss")
MODEL_NAMES = frozenset(
    ("model", "state_dict", "model_state", "model_state_dict", "module", "net", "network", "params", "weights")
)
LIGHTNING_NAME = "pytorch-lightning_version"
PARAMETER_NAME = re.compile(
    r"[.](weight|bias|weight_g|weight_v|running_mean|lora_[ab][.].*|in_proj_weight)$|^_parameters$"
)
"""`_parameters` is in pickled modules (`torch.nn.Module.__init__`). All names are compared in lower case."""
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING")
_NUMBERS = ("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT")


class SavedContent(NamedTuple):
    """What a file has beside tensors. `layout`: `torch`, `lightning`, `weights` (nothing to continue from but the
    parameters), `safetensors`, `keras`."""

    layout: str
    step: int | None = None
    epoch: int | None = None
    val_loss: float | None = None


def read_torch_file(file: BinaryIO) -> SavedContent | None:
    """Return what a file of `torch.save` is; None where it is incomplete, or no checkpoint (TorchScript, lists of
    tensors, an optimizer alone). Raises OSError."""
    start = file.read(len(TORCH_LEGACY_START))
    if start == TORCH_LEGACY_START:
        file.seek(0)
        return _judge_pickle(file.read(MAX_PICKLE_BYTES), skip_pickles=3)
    if not start.startswith(b"PK\x03\x04") or not has_zip_end(file):
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if any(name.endswith("/constants.pkl") for name in names):  # TorchScript
                return None
            name = next((name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")), None)
            if name is None:
                return None
            with archive.open(name) as content:
                return _judge_pickle(content.read(MAX_PICKLE_BYTES))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, KeyError, struct.error):
        return None


def has_zip_end(file: BinaryIO) -> bool:
    """Return True if a zip archive has its directory, of a size that is read here. Raises OSError."""
    end = file.seek(0, 2)
    file.seek(max(0, end - END_RECORD_BYTES - MAX_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(END_RECORD)
    if at < 0 or len(tail) - at < END_RECORD_BYTES:
        return False
    size = int(struct.unpack_from("<I", tail, at + 12)[0])
    return size <= MAX_DIRECTORY_BYTES or size == 0xFFFFFFFF  # the last: a record of zip64 has it


def read_safetensors(file: BinaryIO) -> SavedContent | None:
    """Return what a safetensors file is; None where it is incomplete or none. Raises OSError."""
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= MAX_HEADER_BYTES:
        return None
    try:
        header = json.loads(file.read(length))
        ends = [int(one["data_offsets"][1]) for name, one in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
    return SavedContent("safetensors") if ends and file.seek(0, 2) == 8 + length + max(ends) else None


def read_keras_file(file: BinaryIO) -> SavedContent | None:
    """Return what a file of Keras is (`.keras`: `keras/src/saving/saving_lib.py`; HDF5); None where it is incomplete
    or none. Raises OSError."""
    start = file.read(48)
    if start.startswith(HDF5_SIGNATURE):
        at = 40 if start[8] < 2 else 28
        if len(start) < at + 8:
            return None
        return SavedContent("keras") if struct.unpack_from("<Q", start, at)[0] == file.seek(0, 2) else None
    if not start.startswith(b"PK\x03\x04") or not has_zip_end(file):
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            return SavedContent("keras") if "model.weights.h5" in archive.namelist() else None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):
        return None


def _judge_pickle(pickled: bytes, skip_pickles: int = 0) -> SavedContent | None:
    found = _read_pickle(pickled, skip_pickles)
    numbers = {name: value for name, value in found.root.items() if isinstance(value, (int, float))}
    for name in COUNTER_FOLDERS:
        if isinstance(inner := found.root.get(name), dict):
            numbers = {**{key: one for key, one in inner.items() if isinstance(one, (int, float))}, **numbers}
    names = found.root.keys()
    has_optimizer = any("optim" in name for name in names)
    step = next((numbers[name] for name in STEP_NAMES if name in numbers), None)
    epoch = next((numbers[name] for name in EPOCH_NAMES if name in numbers), None)
    loss = next((float(numbers[name]) for name in METRIC_NAMES if name in numbers), None)
    has_model = bool(MODEL_NAMES & names) or found.has_parameters
    step, epoch = (int(one) if one is not None and 0 <= one < 1 << 53 else None for one in (step, epoch))
    if LIGHTNING_NAME in names:
        return SavedContent("lightning", step, epoch, loss)
    if has_model and (has_optimizer or step is not None or epoch is not None):
        return SavedContent("torch", step, epoch, loss)
    return SavedContent("weights") if has_model else None


class _PickleContent(NamedTuple):
    """Texts, numbers and dictionaries at the top of a pickled dictionary, and whether any name is a parameter's."""

    root: dict[str, Any]
    has_parameters: bool


def _read_pickle(pickled: bytes, skip_pickles: int) -> _PickleContent:
    """Return the content of a pickle. The stack of the pickle machine is followed with texts, numbers and
    dictionaries; everything else stays unknown (None), nothing is imported or called."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    position = count = 0
    has_parameters = False
    try:
        while skip_pickles:
            position += next((at or 0) + 1 for op, _, at in pickletools.genops(pickled[position:]) if op.name == "STOP")
            skip_pickles -= 1
        for op, argument, _ in pickletools.genops(pickled[position:]):
            name, count = op.name, count + 1
            if count > MAX_OPCODES or name == "STOP":
                break
            if name in _TEXTS:
                stack.append(str(argument).lower())
            elif name in _NUMBERS:
                stack.append(argument)
            elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                stack.append(memo.get(argument))
            elif name == "MARK":
                stack.append(_MARK)
            elif name in ("SETITEMS", "SETITEM"):
                items = _pop_to_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                has_parameters = _set_items(stack[-1], items) or has_parameters
            elif name == "BUILD":
                state = stack.pop()
                if isinstance(stack[-1], dict) and isinstance(state, dict):
                    stack[-1].update(state)
            else:
                _apply_other(stack, op)
    except Exception:  # `genops` raises many kinds of errors for what is no pickle, or only the beginning of one
        pass
    root = stack[0] if stack and isinstance(stack[0], dict) else {}
    if len(stack) > 2 and stack[1] is _MARK:  # a pickle of which only the beginning was read
        has_parameters = _set_items(root, stack[2:]) or has_parameters
    return _PickleContent(root, has_parameters)


_MARK = object()
_NEW_OBJECTS = ("EMPTY_DICT", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST", "DICT")
"""Opcodes whose result may get items or a state."""


def _apply_other(stack: list[Any], op: Any) -> None:
    """Do what an opcode does to the stack, by its description in `pickletools`."""
    before = op.stack_before
    if pickletools.markobject in before:
        _pop_to_mark(stack)
        before = before[: before.index(pickletools.markobject)]
    if before:
        del stack[-len(before) :]
    stack.extend({} if op.name in _NEW_OBJECTS else None for _ in op.stack_after)


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1 - next(index for index, one in enumerate(reversed(stack)) if one is _MARK)
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _set_items(target: Any, items: list[Any]) -> bool:
    """Set the items whose keys are texts, and return True if one is the name of a parameter."""
    named = {key: value for key, value in zip(items[::2], items[1::2]) if isinstance(key, str)}  # noqa: B905
    if isinstance(target, dict):
        target.update(named)
    return any(PARAMETER_NAME.search(key) for key in named)
