"""Recognises checkpoints by what training libraries write. A folder or file is one only once it is complete. Standard
library only, Python 3.9 or later.

    layout         what it is                                  complete when
    transformers   checkpoint-500/                             trainer_state.json, weights and optimizer are there
    accelerate     save_state(): checkpoint_0/, step_500/      random_states_0.pkl and the model are there
    deepspeed      global_step500/ beside `latest`             `latest` names it, or a newer one
    megatron       iter_0000100/                               latest_checkpointed_iteration.txt has 100, or more
    dcp            torch.distributed.checkpoint                .metadata is there, and the files of the shards
    orbax          100/, checkpoint_100/                       _CHECKPOINT_METADATA or commit_success.txt is there
    nemo           weights/ and context/ in one folder         weights/ has its metadata
    lightning      *.ckpt                                      the zip archive's directory is there
    torch          *.pt, *.pth, *.bin, *.tar with more than    the same
                   weights
    folder         epoch_3/, step_100/ with files of torch     nothing has changed for a while
    keras          *.keras, *.weights.h5                       the end is where the file says
    flax           checkpoint_100, a file                      it is renamed to its name
    tensorflow     ckpt-1.index                                all of its data files are there
    safetensors    a file, or shards and their index           it ends where the last tensor does; all shards are there
    weights        *.pt, *.pth, *.bin with nothing but weights

In addition each has to be the same in two scans, unless no process is left to write to it (`checkpoint_scan`).

Where nodes have disks of their own, each has a part of what all ranks save together. Which ranks' files are here is
read from the names of files (`find_parts`), and how many ranks saved from `.metadata`, which names the files of all
(`_StorageInfo.relative_path` in torch/distributed/checkpoint/filesystem.py: `__<rank>_<number>.distcp`); with ZeRO
each rank saves its share of the optimizer (`_get_zero_ckpt_name` in deepspeed/runtime/engine.py:
`zero_pp_rank_<rank>_mp_rank_<part of the model>_optim_states.pt`).

What is written last: Transformers' `Trainer._save_checkpoint` (trainer.py) writes weights, optimizer, scheduler and
generators, then trainer_state.json; Accelerate's `save_accelerator_state` (checkpointing.py) model, optimizer,
scheduler and sampler, then random_states_<rank>.pkl; DeepSpeed's `save_checkpoint` (runtime/engine.py) the file
`latest`; Megatron-LM's `save_checkpoint` (megatron/training/checkpointing.py) its tracker file; PyTorch's
`FileSystemWriter.finish` (torch/distributed/checkpoint/filesystem.py) renames .metadata; Orbax (path/atomicity.py)
renames a folder with `.orbax-checkpoint-tmp` in its name, or writes commit_success.txt; Flax's `save_checkpoint`
(training/checkpoints.py) renames a file. Names tell steps in MMEngine (`epoch_3.pth`, `iter_500.pth`:
hooks/checkpoint_hook.py), fvcore and Detectron2 (`model_0004999.pth`: common/checkpoint.py) and fairseq
(`checkpoint_1_500.pt`, epoch and updates: checkpoint_utils.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from fermi.runner import saved_files
from fermi.runner.folder_walk import Entry, Listing, list_files_below
from fermi.runner.saved_files import SavedContent

OpenFile = Callable[[str], BinaryIO]
MAX_JSON_BYTES = 32 << 20
"""Of trainer_state.json and of indices: log_history grows with the training."""
MAX_FILES_READ = 8
"""Files of a folder without marks that are read."""
MAX_METADATA_BYTES = 64 << 20
MAX_PARTS_LENGTH = 500
MAX_STEP = (1 << 53) - 1
TRAINER_STATE = "trainer_state.json"
PART_LAYOUT = "part"
"""What other nodes have to complete."""
WEIGHT_LAYOUTS = ("weights", "safetensors")
"""What has weights alone: training that begins from it has lost its optimizer."""

_STEP_FOLDER = re.compile(
    r"(?:.*[-_.])?(?:global[-_]?step|step|iter|iteration|update|checkpoint|ckpt)[-_=]?(\d{1,15})$", re.I
)
_PLAIN_NUMBER = re.compile(r"\d{1,15}$")
_EPOCH_FOLDER = re.compile(r"(?:.*[-_.])?epochs?[-_=]?(\d{1,9})$", re.I)
_ONGOING = re.compile(r"[.](?:orbax-checkpoint-tmp|partial|incomplete|tmp|temp|lock|part)\b|^tmp[-_]|[.-]unfinished$")
_STEP_IN_NAME = re.compile(r"(?:^|[^a-z])(?:global[-_]?)?(?:step|iter|iteration|update|itr)s?[-_=]?(\d{1,15})", re.I)
_EPOCH_IN_NAME = re.compile(r"(?:^|[^a-z])(?:epoch|ep)s?[-_=]?(\d{1,9})", re.I)
_LOSS_IN_NAME = re.compile(r"val(?:id)?[-_]?loss[-_=](\d{1,9}[.]\d{1,9})", re.I)
_FAIRSEQ = re.compile(r"checkpoint_(\d{1,9})_(\d{1,15})[.]pt$")
_PADDED = re.compile(r"(?:model|ckpt|checkpoint)[-_](\d{7}(?=[.]pth$)|0\d{5,9})[.](?:pt|pth|ckpt|bin|tar)$")
"""A step: Detectron2's `model_0004999.pth` (fvcore `common/checkpoint.py`), nanochat's `model_000400.pt`."""
_FLAX = re.compile(r"checkpoint_(\d{1,15})$")
_TF_INDEX = re.compile(r"(.+)[.]index$")
_TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".pth.tar", ".model", ".th", ".params")
_KERAS_SUFFIXES = (".keras", ".weights.h5")
_HDF5_NAME = re.compile(r"(?:model|weights|ckpt|checkpoint|epoch).*[.](?:h5|hdf5)$", re.I)
_SHARD_INDEX = (".safetensors.index.json", ".bin.index.json")
_MODEL_FILE = re.compile(
    r"(?:(?:pytorch_)?model|adapter_model|tf_model|flax_model|pytorch_model_fsdp.*|model_\d+)[^/]*[.](?:safetensors|bin|pt|h5|msgpack)$"
)
_MODEL_FOLDER = re.compile(r"(?:global_step\d+|pytorch_model.*|model|.*_fsdp.*|sharded.*)$")
_DCP_FILE = re.compile(r"__(\d{1,6})_\d{1,6}[.]distcp$")
_DCP_NAMED = re.compile(rb"__(\d{1,6})_\d{1,6}[.]distcp")
_ZERO_FILE = re.compile(r"zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states[.]pt$")
_MARKS = {".metadata": "dcp", "_CHECKPOINT_METADATA": "orbax", "commit_success.txt": "orbax"}


class Candidate(NamedTuple):
    """What may be a checkpoint, judged by names. `mark`: changes with each change of its files: their number, bytes
    and newest change in nanoseconds."""

    path: str
    layout: str
    mark: tuple[int, int, int]

    @property
    def size(self) -> int:
        return self.mark[1]

    @property
    def changed_at(self) -> float:
        """Unix seconds."""
        return self.mark[2] / 1e9


class CheckpointFacts(NamedTuple):
    """What a complete checkpoint says of itself. `guess`: the step is a number in its name that may as well count
    epochs or saves; `best_step`: of the one that is the best so far."""

    layout: str
    step: int | None = None
    epoch: int | None = None
    val_loss: float | None = None
    guess: int | None = None
    best_step: int | None = None


class Parts(NamedTuple):
    """Of a checkpoint that ranks save together: the numbers of the parts that are here, and how many there are; None:
    nothing here says so."""

    here: frozenset[int]
    needed: int | None

    @property
    def is_whole(self) -> bool:
        return self.needed is not None and len(self.here) >= self.needed


def find_candidates(listing: Listing, *, parts: bool = False) -> Iterator[Candidate]:
    """Yield what may be a checkpoint, without what is inside of another one. `parts`: also what may be a part of one
    that another node has completed, with the layout PART_LAYOUT."""
    claimed: list[str] = []
    for folder in sorted(listing, key=lambda path: (path.count("/"), path)):
        if any(folder.startswith(f"{other}/") for other in claimed):
            continue
        name, entries = folder.rpartition("/")[2], listing[folder]
        if _ONGOING.search(name):
            claimed.append(folder)
            continue
        layout = _classify_folder(name, entries, listing, folder)
        if layout is not None:
            claimed.append(folder)
            if layout or parts:
                yield Candidate(folder, layout or PART_LAYOUT, _mark_folder(listing, folder))
            continue
        for name, entry in entries.items():
            if not entry.is_folder and entry.size and not _ONGOING.search(name) and (kind := _classify_file(name)):
                yield Candidate(f"{folder}/{name}", kind, _mark_file(name, entry, entries))


def _classify_folder(name: str, entries: Mapping[str, Entry], listing: Listing, folder: str) -> str | None:
    """Return the layout of a folder that is a checkpoint; an empty text for one that becomes one; None for others."""
    files = [one for one, entry in entries.items() if not entry.is_folder]
    if TRAINER_STATE in entries and name.startswith("checkpoint-"):
        return "transformers"
    if any(re.match(r"random_states_\d+[.]pkl$", one) for one in files):
        return "accelerate"
    if re.match(r"iter_\d{7}$", name):
        return "megatron"
    for mark, layout in _MARKS.items():
        if mark in entries and (layout != "dcp" or any(one.endswith(".distcp") for one in files)):
            return layout
    if any(one.endswith(("_model_states.pt", "-model_states.pt")) for one in files):
        return "deepspeed"
    if "weights" in entries and "context" in entries and entries["weights"].is_folder:
        return "nemo"
    is_numbered = _STEP_FOLDER.match(name) or _EPOCH_FOLDER.match(name)
    if any(one.endswith(".distcp") for one in files) or re.match(r"(checkpoint-|global_step)\d+$", name):
        return ""
    if any(one.endswith(_SHARD_INDEX) for one in files):
        return "shards"
    return "folder" if is_numbered and _list_torch_files(listing, folder) else None


def _list_torch_files(listing: Listing, folder: str) -> list[str]:
    """Return the files of torch in a numbered folder and in its folders, which may be those of ranks or of models."""
    return sorted(
        name
        for name, entry in list_files_below(listing, folder)
        if entry.size and name.count("/") < 2 and name.lower().endswith((*_TORCH_SUFFIXES, ".safetensors"))
    )


def _classify_file(name: str) -> str | None:
    lower = name.lower()
    if lower.endswith(".safetensors"):
        return "safetensors"
    if lower.endswith(_KERAS_SUFFIXES) or _HDF5_NAME.search(lower):
        return "keras"
    if lower.endswith(_TORCH_SUFFIXES):
        return "torch"
    if _FLAX.match(name):
        return "flax"
    return "tensorflow" if _TF_INDEX.match(name) else None


def _mark_folder(listing: Listing, folder: str) -> tuple[int, int, int]:
    files = [entry for _, entry in list_files_below(listing, folder)]
    return len(files), sum(one.size for one in files), max((one.changed for one in files), default=0)


def _mark_file(name: str, entry: Entry, entries: Mapping[str, Entry]) -> tuple[int, int, int]:
    files = [entry]
    if match := _TF_INDEX.match(name):
        files += [one for other, one in entries.items() if other.startswith(f"{match[1]}.data-")]
    return len(files), sum(one.size for one in files), max(one.changed for one in files)


# --- is it complete, and what does it say ---


def find_parts(path: str, listing: Listing, open_file: OpenFile, world_size: int) -> Parts | None:
    """Return the parts of a folder that ranks save together; None of any other. `world_size`: of the attempt, 0 where
    it is not known. Raises OSError."""
    here, lacking, needed = set[int](), set[int](), set[int]()
    zero_parts = set[int]()
    metadata: list[str] = []
    names: set[str] = set()
    for name, _ in list_files_below(listing, path):
        if match := _DCP_FILE.search(name):
            names.add(name)
            here.add(int(match[1]))
        elif match := _ZERO_FILE.search(name):
            zero_parts.add(int(match[2]) * max(world_size, 1) + int(match[1]))
        elif name.rpartition("/")[2] == ".metadata":
            metadata.append(name)
    for name in metadata if here else ():
        folder = name[: -len(".metadata")]
        with open_file(f"{path}/{name}") as file:
            for found in _DCP_NAMED.finditer(file.read(MAX_METADATA_BYTES)):
                needed.add(int(found[1]))
                if f"{folder}{found[0].decode()}" not in names:
                    lacking.add(int(found[1]))
    if here:
        named = here & needed if needed else here
        return Parts(frozenset(named - lacking), len(needed) or None)
    return Parts(frozenset(zero_parts), world_size or None) if zero_parts else None


def find_identity(candidate: Candidate, listing: Listing) -> str:
    """Return a text that is the same on all nodes that see the same files, and different for files of another disk: the
    number of the newest file and the moment of its last change."""
    folder, _, name = candidate.path.rpartition("/")
    entry = listing.get(folder, {}).get(name)
    files = [one for _, one in list_files_below(listing, candidate.path)]
    files += [entry] if entry and not entry.is_folder else []
    newest = max(files, key=lambda one: (one.changed, one.inode), default=None)
    return f"{newest.inode:x}-{newest.changed:x}" if newest else ""


def read_facts(candidate: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    """Return what a candidate says of itself; None where it is incomplete or no checkpoint. Raises OSError."""
    read = _READERS.get(candidate.layout, _read_saved_file)
    return read(candidate, listing, open_file)


def _read_transformers(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    entries = listing[one.path]
    state = read_json(open_file, f"{one.path}/{TRAINER_STATE}")
    step = state.get("global_step") if state else None
    if not isinstance(step, int) or not _has_model(one.path, listing, open_file):
        return None
    history = state.get("log_history") if state else None
    said = [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []
    losses = [one["eval_loss"] for one in said if one.get("step") == step and isinstance(one.get("eval_loss"), float)]
    if "optimizer.pt" in entries and "scheduler.pt" not in entries and "optimizer.bin" not in entries:
        return None
    best_step = _find_best_step(state or {})
    return CheckpointFacts("transformers", _check_step(step), None, losses[-1] if losses else None, None, best_step)


def _find_best_step(state: Mapping[str, Any]) -> int | None:
    """Return the step of the checkpoint that the Trainer holds for the best one (`TrainerState.best_global_step`, and
    `best_model_checkpoint` of earlier releases, in trainer_callback.py), by the metric that it was given."""
    if isinstance(step := state.get("best_global_step"), int) and not isinstance(step, bool):
        return _check_step(step)
    named = re.search(r"checkpoint-(\d{1,15})$", str(state.get("best_model_checkpoint") or ""))
    return int(named[1]) if named else None


def _read_accelerate(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    if not _has_model(one.path, listing, open_file):
        return None
    name = one.path.rpartition("/")[2]
    # `checkpoint_0`: with automatic names (`ProjectConfiguration`) the number counts saves
    counted = name.startswith("checkpoint_")
    facts = read_folder_name(name, "accelerate")
    return facts._replace(step=None, guess=None) if counted else facts


def _read_deepspeed(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    parent, _, name = one.path.rpartition("/")
    latest = _read_text(open_file, f"{parent}/latest") if "latest" in listing.get(parent, {}) else ""
    facts = read_folder_name(name, "deepspeed")
    if latest == name:
        return facts
    last = _STEP_FOLDER.match(latest)
    return facts if facts.step is not None and last and int(last[1]) >= facts.step else None


def _read_megatron(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    parent, _, name = one.path.rpartition("/")
    latest, step = _read_text(open_file, f"{parent}/latest_checkpointed_iteration.txt"), int(name[5:])
    files = [path for path, _ in list_files_below(listing, one.path)]
    has_model = any(path.endswith((".distcp", "model_optim_rng.pt", "common.pt", "model_rng.pt")) for path in files)
    return CheckpointFacts("megatron", step) if has_model and latest.isdecimal() and int(latest) >= step else None


def _read_dcp(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    return read_folder_name(one.path.rpartition("/")[2], "dcp")


def _read_orbax(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    facts = read_folder_name(one.path.rpartition("/")[2], "orbax")
    # `default`, `state`: one item of a checkpoint whose folder has the mark too; items of a step are in its folder
    return facts if one.size else None


def _read_nemo(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    weights = listing.get(f"{one.path}/weights", {})
    if ".metadata" not in weights and "metadata.json" not in weights:
        return None
    name = one.path.rpartition("/")[2]
    return CheckpointFacts("nemo", _find_number(_STEP_IN_NAME, name), None, _find_loss(name))


def _read_folder(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    """Return what a folder with files of torch says: the first of its files that has a step or an optimizer counts."""
    named, best = read_folder_name(one.path.rpartition("/")[2], "folder"), None
    for name in _list_torch_files(listing, one.path)[:MAX_FILES_READ]:
        found = _read_content(f"{one.path}/{name}", _classify_file(name) or "", open_file)
        if found and (best is None or (best.step is None and found.step is not None)):
            best = found
    if best is None:
        return None
    return named._replace(step=best.step if best.step is not None else named.step, val_loss=best.val_loss)


def _read_shards(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    return (
        read_folder_name(one.path.rpartition("/")[2], "safetensors")
        if _has_model(one.path, listing, open_file)
        else None
    )


def _read_flax(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    match = _FLAX.search(one.path.rpartition("/")[2])
    with open_file(one.path) as file:
        start = file.read(1)
    is_map = bool(start) and (0x80 <= start[0] <= 0x8F or start[0] in (0xDE, 0xDF))  # the MessagePack specification
    return CheckpointFacts("flax", int(match[1])) if match and is_map else None


def _read_tensorflow(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    folder, _, name = one.path.rpartition("/")
    stem = name[: -len(".index")]
    shards = [other for other in listing.get(folder, {}) if re.match(rf"{re.escape(stem)}[.]data-\d+-of-\d+$", other)]
    if not shards or len(shards) != int(shards[0].rpartition("-")[2]):
        return None
    return CheckpointFacts("tensorflow", None, None, None, _find_number(re.compile(r"(\d{1,15})$"), stem))


def _read_saved_file(one: Candidate, listing: Listing, open_file: OpenFile) -> CheckpointFacts | None:
    content = _read_content(one.path, one.layout, open_file)
    if content is None:
        return None
    name = one.path.rpartition("/")[2]
    step, epoch, guess = content.step, content.epoch, None
    if step is None and (match := _FAIRSEQ.match(name)):
        epoch, step = int(match[1]), int(match[2])
    elif step is None and (match := _PADDED.match(name)):
        step = int(match[1])
    elif step is None and (number := _find_number(_STEP_IN_NAME, name)) is not None:
        step = number
    elif step is None:
        epoch = epoch if epoch is not None else _find_number(_EPOCH_IN_NAME, name)
        guess = _find_number(re.compile(r"(?:checkpoint|ckpt|model|weights)[-_.]?(\d{1,15})", re.I), name)
    loss = content.val_loss if content.val_loss is not None else _find_loss(name)
    return CheckpointFacts(content.layout, _check_step(step), epoch, loss, guess)


_Reader = Callable[[Candidate, Listing, OpenFile], "CheckpointFacts | None"]
_READERS: dict[str, _Reader] = {
    "transformers": _read_transformers, "accelerate": _read_accelerate, "deepspeed": _read_deepspeed,
    "megatron": _read_megatron, "dcp": _read_dcp, "orbax": _read_orbax, "nemo": _read_nemo, "folder": _read_folder,
    "shards": _read_shards, "flax": _read_flax, "tensorflow": _read_tensorflow,
}  # fmt: skip


def _read_content(path: str, layout: str, open_file: OpenFile) -> SavedContent | None:
    with open_file(path) as file:
        if layout == "safetensors":
            return saved_files.read_safetensors(file)
        return saved_files.read_keras_file(file) if layout == "keras" else saved_files.read_torch_file(file)


def _has_model(folder: str, listing: Listing, open_file: OpenFile) -> bool:
    """Return True if a folder has a model's weights, and all shards that an index names."""
    entries = listing[folder]
    index = next((name for name in entries if name.endswith(_SHARD_INDEX)), None)
    if index:
        said = read_json(open_file, f"{folder}/{index}") or {}
        shards = said.get("weight_map")
        return isinstance(shards, dict) and bool(shards) and all(str(name) in entries for name in shards.values())
    return any(
        _MODEL_FOLDER.match(name) if entry.is_folder else _MODEL_FILE.match(name) and entry.size
        for name, entry in entries.items()
    )


def read_folder_name(name: str, layout: str) -> CheckpointFacts:
    """Return what the name of a folder says of the checkpoint in it."""
    step = _STEP_FOLDER.match(name)
    epoch = _EPOCH_FOLDER.match(name)
    if epoch:
        return CheckpointFacts(layout, None, int(epoch[1]), _find_loss(name))
    number = int(step[1]) if step else int(name) if _PLAIN_NUMBER.match(name) else _find_number(_STEP_IN_NAME, name)
    return CheckpointFacts(layout, _check_step(number), None, _find_loss(name))


def _find_number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.search(name)
    return int(match[1]) if match else None


def _find_loss(name: str) -> float | None:
    match = _LOSS_IN_NAME.search(name)
    return float(match[1]) if match else None


def _check_step(step: int | None) -> int | None:
    return step if step is not None and 0 <= step <= MAX_STEP else None


def _read_text(open_file: OpenFile, path: str) -> str:
    try:
        with open_file(path) as file:
            return file.read(200).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def read_json(open_file: OpenFile, path: str) -> dict[str, Any] | None:
    """Return the object in a JSON file; None for anything else. Raises OSError."""
    with open_file(path) as file:
        try:
            found = json.loads(file.read(MAX_JSON_BYTES))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None
