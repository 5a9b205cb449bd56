"""What a runner finds in the files of ranks: checkpoints and metrics, without a word of their script."""

import json
import os
import struct
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from fermi.runner import checkpoint_layouts, folder_walk, metric_files
from fermi.runner.checkpoint_scan import StepHistory
from fermi.runner.file_scan import FileScan
from fermi.runner.folder_walk import FolderWalk
from tests.lazy import lazy_import

torch, dcp = lazy_import("torch"), lazy_import("torch.distributed.checkpoint")
tensorboard = lazy_import("torch.utils.tensorboard")
OLD = 1_700_000_000


class Attempt:
    """An attempt whose ranks run in `tree` and were started just now."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.tree.mkdir(parents=True, exist_ok=True)
        self.scan = FileScan(str(self.tree), {"FERMI_CHECKPOINT_DIR": str(folder / "checkpoints")}, time.time() - 60)

    def find(self, *, last: bool = False) -> list[dict[str, Any]]:
        self.scan.scan(last=last)
        return self.scan.pop_records()

    def checkpoints(self) -> list[dict[str, Any]]:
        """Return what was found in as many scans as a folder needs, with paths relative to the tree."""
        found = [one for _ in range(3) for one in self.find() if "checkpoint" in one]
        return [{**one["checkpoint"], "path": os.path.relpath(one["checkpoint"]["path"], self.tree)} for one in found]

    def points(self) -> list[tuple[int, dict[str, float]]]:
        return [(one["step"], one["values"]) for one in self.find() if "values" in one]


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


@pytest.fixture
def state() -> dict[str, Any]:
    """What a training script saves."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content() if isinstance(content, FunctionType) else content
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        torch.save(content, path)
    return path


def safetensors(numbers: int = 4) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * numbers)


def only(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(found) == 1, found
    return found[0]


# --- files of torch ---


def test_a_file_that_is_written_again_is_a_new_save_each_time(attempt: Attempt, state: dict[str, Any]) -> None:
    path = attempt.tree / "out" / "ckpt.pt"
    write(path, {**state, "iter_num": 100, "best_val_loss": 1.25, "config": {"global_step": 7}})
    expected = {"path": "out/ckpt.pt", "step": 100, "layout": "torch", "val_loss": 1.25}
    assert expected.items() <= only(attempt.checkpoints()).items()
    assert attempt.checkpoints() == []
    write(path, {**state, "iter_num": 200})
    assert only(attempt.checkpoints())["step"] == 200


def test_a_file_is_found_once_it_is_whole_and_stays_the_same(attempt: Attempt, state: dict[str, Any]) -> None:
    whole = write(attempt.tree / "whole.pt", {**state, "step": 5}).read_bytes()
    (attempt.tree / "whole.pt").unlink()
    path = write(attempt.tree / "ckpt.pt", whole[:-40])
    assert attempt.checkpoints() == []
    path.write_bytes(whole)
    assert attempt.find() == [], "it may still be written to"
    assert only(attempt.find())["checkpoint"]["size_bytes"] == len(whole)


def test_the_last_scan_does_not_wait_for_a_second_one(attempt: Attempt, state: dict[str, Any]) -> None:
    write(attempt.tree / "ckpt.pt", {**state, "step": 5})
    assert only(attempt.find(last=True))["checkpoint"]["step"] == 5


def test_what_existed_before_the_attempt_is_none_of_its_checkpoints(tmp_path: Path, state: dict[str, Any]) -> None:
    old, folder = write(tmp_path / "tree" / "old.pt", {**state, "step": 5}), tmp_path / "tree" / "checkpoint-5"
    write(folder / "trainer_state.json", json.dumps({"global_step": 5}))
    write(folder / "model.safetensors", safetensors())
    for path in (old, *folder.iterdir()):
        os.utime(path, (OLD, OLD))
    attempt = Attempt(tmp_path)
    assert attempt.checkpoints() == []
    write(old, {**state, "step": 6})
    assert only(attempt.checkpoints())["step"] == 6


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("epoch=3-step=400-val_loss=0.52.ckpt",
         {"pytorch-lightning_version": "2.6", "global_step": 400, "epoch": 3, "state_dict": {}},
         {"layout": "lightning", "step": 400, "epoch": 3, "val_loss": 0.52}),
        ("model_best.pth.tar", {"epoch": 3, "arch": "resnet50", "state_dict": {}, "best_acc1": 1.0},
         {"layout": "torch", "step": None, "epoch": 3}),
        ("snapshot.pt", {"MODEL_STATE": {}, "EPOCHS_RUN": 4}, {"layout": "torch", "step": None, "epoch": 4}),
        ("iter_500.pth", {"meta": {"epoch": 1, "iter": 500}, "state_dict": {}}, {"layout": "torch", "step": 500}),
        ("checkpoint_2_750.pt", {"model": {}, "optimizer_history": [{"num_updates": 9}]}, {"step": 750, "epoch": 2}),
        ("model_0004999.pth", {"model": {}, "optimizer": {}}, {"layout": "torch", "step": 4999}),
        ("model_000400.pt", lambda: {"layer.weight": torch.ones(2)}, {"layout": "weights", "step": 400}),
        ("weights.pt", lambda: {"layer.weight": torch.ones(2), "layer.bias": torch.ones(2)}, {"layout": "weights"}),
        ("whole_module.pt", lambda: torch.nn.Linear(2, 2), {"layout": "weights"}),
        ("ckpt_30.pt", {"model": {}, "optimizer": {}}, {"step": 30, "counted": True}),
    ],
)  # fmt: skip
def test_names_and_content_of_files_say_what_they_are(
    attempt: Attempt, name: str, content: Any, expected: dict[str, Any]
) -> None:
    write(attempt.tree / name, content)
    assert expected.items() <= only(attempt.checkpoints()).items()


def test_a_file_in_the_old_format_of_torch_is_read(attempt: Attempt, state: dict[str, Any]) -> None:
    torch.save({**state, "step": 9}, attempt.tree / "old.pth", _use_new_zipfile_serialization=False)
    assert {"layout": "torch", "step": 9}.items() <= only(attempt.checkpoints()).items()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.bin", bytes(range(256)) * 100),
        ("data.pt", lambda: {"x": torch.ones(3), "y": torch.ones(3)}),
        ("cache.pt", lambda: [torch.ones(3)]),
        ("optimizer.pt", lambda: torch.optim.SGD([torch.ones(1)], 0.1).state_dict()),
        ("archive.tar", b"PK\x03\x04 not a zip archive PK\x05\x06" + bytes(18)),
        ("model.safetensors", safetensors()[:-1]),
        ("text.pth", "nothing"),
        ("ckpt.pt.tmp", {"model": {}, "step": 3}),
        ("checkpoint.h5", b"\x89HDF\r\n\x1a\n" + bytes(40)),
    ],
)
def test_files_that_are_no_checkpoints_or_not_whole_are_not_reported(attempt: Attempt, name: str, content: Any) -> None:
    write(attempt.tree / name, content)
    assert attempt.checkpoints() == []


def test_torchscript_is_no_checkpoint(attempt: Attempt) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(attempt.tree / "exported.pt"))
    assert attempt.checkpoints() == []


def test_numbers_of_a_pickle_are_read_without_unpickling_it(attempt: Attempt) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {attempt.tree}/ran",)

    write(attempt.tree / "ckpt.pt", {"model": Malicious(), "step": 3})
    assert only(attempt.checkpoints())["step"] == 3
    assert not (attempt.tree / "ran").exists()


def test_without_a_step_of_its_own_a_save_has_that_which_the_probe_counted(
    attempt: Attempt, state: dict[str, Any]
) -> None:
    path = write(attempt.tree / "last.pt", state)
    saved_at = path.stat().st_mtime
    for at, step in ((saved_at - 2, 40), (saved_at - 1, 50), (saved_at + 1, 60)):
        attempt.scan.checkpoints.steps.add(at, step)
    assert {"step": 50, "counted": True}.items() <= only(attempt.checkpoints()).items()


@pytest.mark.parametrize(("name", "step"), [("model_40.pt", 40), ("model_7.pt", 33), ("model_61.pt", 33)])
@pytest.mark.parametrize("later", [True, False])
def test_a_number_in_the_name_is_the_step_where_as_many_steps_were_counted_around_the_save(
    attempt: Attempt, name: str, step: int, later: bool
) -> None:
    saved_at = write(attempt.tree / name, {"model": {}, "optimizer": {}}).stat().st_mtime
    for at, counted in ((saved_at - 1.5, 13), (saved_at - 0.5, 33), *([(saved_at + 0.6, 60)] if later else [])):
        attempt.scan.checkpoints.steps.add(at, counted)
    assert {"step": step, "counted": True}.items() <= only(attempt.checkpoints()).items()


def test_the_history_of_steps_is_bounded() -> None:
    history = StepHistory()
    for second in range(10_000):
        history.add(float(second), second + 1)
    assert history.find(9999.5) == 10_000
    assert history.find(10.0) is None


# --- folders ---


def hf_checkpoint(folder: Path, step: int) -> None:
    write(folder / "model.safetensors", safetensors())
    write(folder / "optimizer.pt", b"optimizer")
    write(folder / "scheduler.pt", b"scheduler")
    write(folder / "rng_state.pth", b"rng")
    history = [{"step": step, "loss": 2.0, "epoch": 0.5}, {"step": step, "eval_loss": 1.5, "epoch": 0.5}]
    write(folder / "trainer_state.json", json.dumps({"global_step": step, "log_history": history}))


def test_a_folder_of_the_trainer_is_complete_with_its_state(attempt: Attempt) -> None:
    folder = attempt.tree / "out" / "checkpoint-500"
    hf_checkpoint(folder, 500)
    state = (folder / "trainer_state.json").read_text()
    (folder / "trainer_state.json").unlink()
    assert attempt.checkpoints() == [], "neither the folder nor one of its files"
    write(folder / "trainer_state.json", state)
    expected = {"path": "out/checkpoint-500", "layout": "transformers", "step": 500, "val_loss": 1.5}
    assert expected.items() <= only(attempt.checkpoints()).items()


def test_all_shards_that_an_index_names_have_to_be_there(attempt: Attempt) -> None:
    folder = attempt.tree / "checkpoint-2"
    write(folder / "trainer_state.json", json.dumps({"global_step": 2}))
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    write(folder / "model.safetensors.index.json", json.dumps({"weight_map": shards}))
    write(folder / shards["a"], safetensors())
    assert attempt.checkpoints() == []
    write(folder / shards["b"], safetensors())
    assert only(attempt.checkpoints())["layout"] == "transformers"


@pytest.mark.parametrize(
    ("name", "expected"), [("step_500", {"step": 500}), ("epoch_1", {"epoch": 1}), ("checkpoint_0", {"step": None})]
)
def test_folders_of_accelerate_are_found(attempt: Attempt, name: str, expected: dict[str, Any]) -> None:
    folder = attempt.tree / name
    write(folder / "model.safetensors", safetensors())
    write(folder / "optimizer.bin", b"optimizer")
    write(folder / "random_states_0.pkl", b"states")
    assert {"path": name, "layout": "accelerate", **expected}.items() <= only(attempt.checkpoints()).items()


def test_a_folder_of_dcp_is_complete_with_its_metadata(attempt: Attempt, state: dict[str, Any]) -> None:
    folder = attempt.tree / "outputs" / "step-100"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": state["model"]}, checkpoint_id=str(folder))
    (folder / ".metadata").rename(attempt.tree / "moved")
    assert attempt.checkpoints() == []
    (attempt.tree / "moved").rename(folder / ".metadata")
    expected = {"path": "outputs/step-100", "layout": "dcp", "step": 100}
    assert expected.items() <= only(attempt.checkpoints()).items()


def test_a_folder_of_deepspeed_is_complete_once_latest_names_it(attempt: Attempt) -> None:
    for step in (10, 20):
        write(attempt.tree / "ds" / f"global_step{step}" / "mp_rank_00_model_states.pt", b"states")
        write(attempt.tree / "ds" / f"global_step{step}" / "zero_pp_rank_0_mp_rank_00_optim_states.pt", b"states")
    assert attempt.checkpoints() == []
    write(attempt.tree / "ds" / "latest", "global_step10")
    assert only(attempt.checkpoints())["step"] == 10
    write(attempt.tree / "ds" / "latest", "global_step20")
    assert {"path": "ds/global_step20", "layout": "deepspeed"}.items() <= only(attempt.checkpoints()).items()


def test_a_folder_of_megatron_is_complete_once_the_tracker_names_it(attempt: Attempt) -> None:
    write(attempt.tree / "ck" / "iter_0000100" / "mp_rank_00" / "model_optim_rng.pt", b"states")
    assert attempt.checkpoints() == []
    write(attempt.tree / "ck" / "latest_checkpointed_iteration.txt", "100")
    expected = {"path": "ck/iter_0000100", "layout": "megatron", "step": 100}
    assert expected.items() <= only(attempt.checkpoints()).items()


def test_folders_and_files_of_jax_and_keras_are_found(attempt: Attempt) -> None:
    write(attempt.tree / "orbax" / "30" / "_CHECKPOINT_METADATA", "{}")
    write(attempt.tree / "orbax" / "30" / "default" / "manifest.ocdbt", b"data")
    write(attempt.tree / "orbax" / "40.orbax-checkpoint-tmp-1" / "_CHECKPOINT_METADATA", "{}")
    write(attempt.tree / "flax" / "checkpoint_7", b"\x82\xa4step\x07\xa5model\x80")
    with zipfile.ZipFile(attempt.tree / "epoch_02.keras", "w") as archive:
        archive.writestr("model.weights.h5", b"weights")
    hdf5 = b"\x89HDF\r\n\x1a\n" + bytes([2, 8, 8, 0]) + bytes(16)
    write(attempt.tree / "w.weights.h5", hdf5 + struct.pack("<Q", 100) + bytes(64))
    for name in ("ckpt-3.index", "ckpt-3.data-00000-of-00001"):
        write(attempt.tree / "tf" / name, b"data")
    write(attempt.tree / "tf" / "ckpt-4.index", b"data")
    found = {one["path"]: (one["layout"], one["step"], one.get("epoch")) for one in attempt.checkpoints()}
    assert found == {
        "orbax/30": ("orbax", 30, None), "flax/checkpoint_7": ("flax", 7, None),
        "epoch_02.keras": ("keras", None, 2), "w.weights.h5": ("keras", None, None),
        "tf/ckpt-3.index": ("tensorflow", 3, None),
    }  # fmt: skip


def test_a_folder_without_marks_is_complete_once_nothing_changes_for_a_while(
    attempt: Attempt, state: dict[str, Any]
) -> None:
    write(attempt.tree / "epoch_3" / "model.pt", state["model"])
    assert attempt.find() == attempt.find() == []
    write(attempt.tree / "epoch_3" / "optimizer.pt", state["optimizer"])
    expected = {"path": "epoch_3", "layout": "folder", "epoch": 3}
    assert expected.items() <= only(attempt.checkpoints()).items()


# --- where is looked ---


def test_links_caches_packages_and_data_sets_are_not_entered(
    attempt: Attempt, state: dict[str, Any], tmp_path: Path
) -> None:
    outside = write(tmp_path / "outside" / "secret.pt", {**state, "step": 1})
    (attempt.tree / "link.pt").symlink_to(outside)
    (attempt.tree / "linked").symlink_to(outside.parent)
    os.mkfifo(attempt.tree / "pipe.pt")
    for folder in (".cache", "models--gpt2/snapshots", "node_modules", "lib/site-packages", "wandb/run"):
        write(attempt.tree / folder / "model.pt", {**state, "step": 1})
    write(attempt.tree / "env" / "pyvenv.cfg", "home = /usr")
    write(attempt.tree / "env" / "share" / "model.pt", {**state, "step": 1})
    assert attempt.checkpoints() == []


def test_folders_of_downloads_that_variables_name_are_not_entered(tmp_path: Path, state: dict[str, Any]) -> None:
    write(tmp_path / "hub" / "model.pt", {**state, "step": 1})
    scan = FileScan(str(tmp_path), {"HF_HOME": str(tmp_path / "hub")}, 0.0)
    scan.scan(last=True)
    assert scan.pop_records() == []


def test_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_walk, "MAX_FOLDER_ENTRIES", 10)
    monkeypatch.setattr(folder_walk, "MAX_ENTRIES", 40)
    for number in range(20):
        write(tmp_path / "large" / f"{number}", "x")
        write(tmp_path / f"folder{number}" / "a" / "b", "x")
    listing = FolderWalk([str(tmp_path)]).list_all()
    assert sum(map(len, listing.values())) <= 40
    assert listing.get(f"{tmp_path}/large", {}) == {}
    deep = tmp_path / "deep"
    write(deep.joinpath(*"abcdefghijklmnop") / "ckpt.pt", "x")
    assert not any("ckpt.pt" in entries for entries in FolderWalk([str(deep)]).list_all().values())


def test_a_file_is_not_opened_where_a_folder_has_become_a_link(tmp_path: Path) -> None:
    write(tmp_path / "root" / "folder" / "file", "inside")
    write(tmp_path / "elsewhere" / "file", "secret")
    walk = FolderWalk([str(tmp_path / "root")])
    with walk.open_file(f"{tmp_path}/root/folder/file") as file:
        assert file.read() == b"inside"
    (tmp_path / "root" / "folder").rename(tmp_path / "root" / "moved")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        walk.open_file(f"{tmp_path}/root/folder/file")
    with pytest.raises(OSError):
        walk.open_file(f"{tmp_path}/elsewhere/file")


def test_each_reader_of_a_layout_can_be_reached() -> None:
    layouts = {*checkpoint_layouts._MARKS.values(), "transformers", "accelerate", "deepspeed", "megatron", "nemo"}
    assert layouts <= checkpoint_layouts._READERS.keys()


# --- metrics ---


def test_scalars_of_tensorboard_are_followed(attempt: Attempt) -> None:
    writer = tensorboard.SummaryWriter(str(attempt.tree / "runs" / "today"))
    writer.add_scalar("loss", 2.5, 1)
    writer.add_scalar("lr", 0.1, 1, new_style=True)
    writer.add_histogram("weights", torch.randn(10), 1)
    writer.add_image("image", torch.zeros(3, 300, 300), 1)
    writer.flush()
    assert attempt.points() == [(1, {"loss": 2.5, "lr": 0.1})]
    assert attempt.points() == []
    writer.add_scalar("loss", 2.25, 2)
    writer.close()
    assert attempt.points() == [(2, {"loss": 2.25})]


def test_runs_of_tensorboard_are_told_apart_by_their_folders(attempt: Attempt) -> None:
    for name, loss in (("train", 2.0), ("val", 3.0), ("first", 4.0), ("second", 5.0)):
        with tensorboard.SummaryWriter(str(attempt.tree / "runs" / name)) as writer:
            writer.add_scalar("loss", loss, 1)
    with tensorboard.SummaryWriter(str(attempt.tree / "more")) as writer:
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 1)
    found = {name: value for _, values in attempt.points() for name, value in values.items()}
    assert found == {
        "train/loss": 2.0, "val/loss": 3.0, "loss": 4.0, "second/loss": 5.0, "both/a": 1.0, "both/b": 2.0
    }  # fmt: skip


def test_two_loggers_of_one_script_are_one_set_of_curves(attempt: Attempt) -> None:
    write(attempt.tree / "csv" / "metrics.csv", "epoch,step,train_loss\n0,9,1.2345678\n")
    with tensorboard.SummaryWriter(str(attempt.tree / "tb")) as writer:
        writer.add_scalar("train/loss", 1.2345678, 9)
        writer.add_scalar("other", 7.0, 9)
    assert attempt.points() == [(9, {"epoch": 0.0, "train_loss": 1.2345678}), (9, {"other": 7.0})]


def test_a_table_that_is_written_anew_with_another_column_gives_new_rows_only(attempt: Attempt) -> None:
    path = write(attempt.tree / "metrics.csv", "epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,1.2\n")
    assert attempt.points() == [(9, {"epoch": 0.0, "train_loss": 1.5}), (9, {"epoch": 0.0, "val_loss": 1.2})]
    write(path, "epoch,step,train_loss,val_loss,acc\n0,9,1.5,,\n0,9,,1.2,\n1,19,1.1,,0.4\n")
    assert attempt.points() == [(19, {"epoch": 1.0, "train_loss": 1.1, "acc": 0.4})]
    with path.open("a") as file:
        file.write("1,29,1.0,,0.5\n2,3")
    assert attempt.points() == [(29, {"epoch": 1.0, "train_loss": 1.0, "acc": 0.5})]


def test_lines_of_json_are_followed(attempt: Attempt) -> None:
    path = write(
        attempt.tree / "log.jsonl", '{"iteration": 5, "train": {"loss": 2.0}, "ok": true, "time": 1763703000.5}\n'
    )
    assert attempt.find() == [{"source": "file", "step": 5, "values": {"train/loss": 2.0}, "time": 1763703000.5}]
    with path.open("a") as file:
        file.write('{"iteration": 6, "train": {"loss": NaN}}\nnot json\n{"epoch": 2, "accuracy": 0.5}\n')
    assert attempt.points() == [(2, {"epoch": 2, "accuracy": 0.5})]


def test_the_history_of_the_trainer_is_reported_once(attempt: Attempt) -> None:
    hf_checkpoint(attempt.tree / "out" / "checkpoint-5", 5)
    assert attempt.points() == [(5, {"epoch": 0.5, "loss": 2.0}), (5, {"epoch": 0.5, "eval_loss": 1.5})]
    hf_checkpoint(attempt.tree / "out" / "checkpoint-6", 6)
    state = attempt.tree / "out" / "checkpoint-6" / "trainer_state.json"
    entries = [{"step": 5, "loss": 2.0, "epoch": 0.5}, {"step": 6, "loss": 1.9, "epoch": 0.6, "total_flos": 1}]
    write(state, json.dumps({"global_step": 6, "log_history": entries}))
    assert attempt.points() == [(6, {"epoch": 0.6, "loss": 1.9})]


def test_what_was_written_before_the_attempt_is_not_reported(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    files = [
        write(tree / "metrics.csv", "step,loss\n1,2.0\n"),
        write(tree / "metrics.jsonl", '{"step": 1, "loss": 2.0}\n'),
        write(tree / "trainer_state.json", json.dumps({"log_history": [{"step": 1, "loss": 2.0}]})),
    ]
    with tensorboard.SummaryWriter(str(tree / "tb")) as writer:
        writer.add_scalar("loss", 2.0, 1)
    for path in (*files, *(tree / "tb").iterdir()):
        os.utime(path, (OLD, OLD))
    attempt = Attempt(tmp_path)
    assert attempt.points() == []
    write(tree / "metrics.csv", "step,loss\n1,2.0\n2,1.0\n")
    assert attempt.points() == [(2, {"loss": 1.0})]
    with (tree / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "accuracy": 1.0}\n')
    assert attempt.points() == [(3, {"accuracy": 1.0})]
    write(tree / "trainer_state.json", json.dumps({"log_history": [{"step": 1, "loss": 2.0}, {"step": 4, "f1": 1.5}]}))
    assert attempt.points() == [(4, {"f1": 1.5})]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.csv", "question,score\nwhy,0.5\n"),
        ("results.jsonl", '{"id": 7, "score": 0.5}\n[1, 2]\n'),
        ("metrics.json", '{\n  "accuracy": 0.5\n}\n'),
        ("events.out.tfevents.1", b"this is no event file at all"),
        ("metrics.csv", lambda: b"step,loss\n" + b"\xff" * 200_000),
        ("trainer_state.json", "[1]"),
    ],
)
def test_tables_without_steps_and_damaged_files_are_left_alone(attempt: Attempt, name: str, content: Any) -> None:
    write(attempt.tree / name, content)
    assert attempt.points() == attempt.points() == []


def test_what_is_read_and_reported_is_bounded(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(metric_files, "MAX_LINE_BYTES", 1024)
    monkeypatch.setattr(metric_files, "MAX_SCAN_RECORDS", 100)
    monkeypatch.setattr(metric_files, "DENSE_RECORDS", 1000)
    rows = "".join(f"{step},{step / 2}\n" for step in range(1, 5001))
    write(attempt.tree / "metrics.csv", f"step,loss\n{rows}")
    scans = []
    while found := attempt.points():
        scans.append(found)
    steps = [step for found in scans for step, _ in found]
    assert steps == sorted(steps)
    assert steps[:1000] == list(range(1, 1001))
    assert steps[-1] == 5000
    assert len(steps) < 2000
    assert max(map(len, scans)) < 1000


def test_a_record_fits_into_a_frame_of_the_log(attempt: Attempt) -> None:
    names = [f"{'long name ' * 15}{number}" for number in range(200)]
    write(attempt.tree / "metrics.csv", f"step,{','.join(names)}\n1,{','.join('1' for _ in names)}\n")
    found = attempt.find()
    assert sum(len(one["values"]) for one in found) == 200
    assert max(len(json.dumps(one, separators=(",", ":"))) for one in found) < 3400


# --- the thread ---


def test_the_thread_looks_a_last_time_when_it_is_told_to_finish(tmp_path: Path, state: dict[str, Any]) -> None:
    scan = FileScan(str(tmp_path), {}, time.time() - 1)
    scan.start()
    write(tmp_path / "ckpt.pt", {**state, "step": 5})
    found = scan.finish()
    assert [one["checkpoint"]["step"] for one in found] == [5]


def test_the_runner_of_rank_0_looks_and_only_into_folders_of_its_task(tmp_path: Path) -> None:
    spec = {"pulse": True, "cwd": str(tmp_path / "cwd"), "env": {"FERMI_OUTPUT_DIR": str(tmp_path / "out")}}
    for name in ("cwd", "out"):
        (tmp_path / name).mkdir()
    roots = {}
    for name, own in (("shared", {}), ("code", {"code": {}}), ("inside", {"own_cwd": True})):
        scan = FileScan.from_spec({**spec, **own, "ranks": [{"rank": 0}, {"rank": 1}]}, 0.0)
        assert scan
        roots[name] = [os.path.basename(root) for root in scan.walk.roots]
    assert roots == {"shared": ["out"], "code": ["out", "cwd"], "inside": ["out", "cwd"]}
    assert FileScan.from_spec({**spec, "ranks": [{"rank": 2}]}, 0.0) is None
    assert FileScan.from_spec({**spec, "pulse": False, "ranks": [{"rank": 0}]}, 0.0) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"best_global_step": 500, "best_model_checkpoint": "out/checkpoint-400"}, 500),
        ({"best_model_checkpoint": "out/checkpoint-400"}, 400),
        ({"best_global_step": None, "best_model_checkpoint": None}, None),
    ],
)
def test_the_trainer_says_which_one_is_the_best(attempt: Attempt, said: dict[str, Any], expected: int | None) -> None:
    folder = attempt.tree / "checkpoint-500"
    write(folder / "model.safetensors", safetensors())
    write(folder / "trainer_state.json", json.dumps({"global_step": 500, "log_history": [], **said}))
    assert only(attempt.checkpoints()).get("best_step") == expected


# --- nodes with disks of their own ---


def scan_once(folder: Path, *, is_head: bool, world_size: int = 4) -> list[dict[str, Any]]:
    """Return the checkpoints that the last scan of a node finds in its folder, with paths below it."""
    env = {"FERMI_CHECKPOINT_DIR": str(folder), "WORLD_SIZE": str(world_size)}
    scan = FileScan(None, env, time.time() - 60, is_head=is_head)
    scan.scan(last=True)
    found = [one["checkpoint"] for one in scan.pop_records()]
    return [{**one, "path": os.path.relpath(one["path"], folder)} for one in found]


def save_share(folder: Path, ranks: list[int], *, all_ranks: int = 4, completes: bool = False) -> None:
    for rank in ranks:
        write(folder / f"__{rank}_0.distcp", b"share")
    if completes:
        write(folder / ".metadata", b"".join(b"\x8c\x0e__%d_0.distcp" % rank for rank in range(all_ranks)))


def test_each_node_reports_its_part_of_what_all_ranks_save(tmp_path: Path) -> None:
    save_share(tmp_path / "a" / "step-20", [0, 1], completes=True)
    save_share(tmp_path / "b" / "step-20", [2, 3])
    head, other = only(scan_once(tmp_path / "a", is_head=True)), only(scan_once(tmp_path / "b", is_head=False))
    expected = {"path": "step-20", "step": 20, "layout": "dcp", "parts": "0-1", "parts_needed": 4}
    assert expected.items() <= head.items()
    assert {"path": "step-20", "step": 20, "layout": "part", "parts": "2-3"}.items() <= other.items()
    assert "parts_needed" not in other
    assert scan_once(tmp_path / "b", is_head=True) == [], "the node of rank 0 completes what all save"


def test_of_a_folder_that_all_nodes_see_each_reports_the_same(tmp_path: Path) -> None:
    save_share(tmp_path / "step-20", [0, 1, 2, 3], completes=True)
    head, other = only(scan_once(tmp_path, is_head=True)), only(scan_once(tmp_path, is_head=False))
    assert head == other
    assert "parts" not in head


def test_the_shards_inside_of_a_checkpoint_of_a_trainer_count(tmp_path: Path) -> None:
    for node, ranks in (("a", (0, 1)), ("b", (2, 3))):
        for rank in ranks:
            name = f"checkpoint-500/global_step500/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
            write(tmp_path / node / name, b"states")
            write(tmp_path / node / f"checkpoint-500/rng_state_{rank}.pth", b"states")
    write(tmp_path / "a/checkpoint-500/global_step500/mp_rank_00_model_states.pt", b"states")
    write(tmp_path / "a/checkpoint-500/model.safetensors", safetensors())
    write(tmp_path / "a/checkpoint-500/trainer_state.json", json.dumps({"global_step": 500}))
    head, other = only(scan_once(tmp_path / "a", is_head=True)), only(scan_once(tmp_path / "b", is_head=False))
    assert (head["path"], head["parts"], head["parts_needed"]) == ("checkpoint-500", "0-1", 4)
    assert (other["path"], other["parts"], other["layout"]) == ("checkpoint-500", "2-3", "part")
    alone = FileScan(None, {"FERMI_CHECKPOINT_DIR": str(tmp_path / "a")}, time.time() - 60, starts_ranks=True)
    alone.scan(last=True)
    assert "parts_needed" not in only(alone.pop_records())["checkpoint"], "how many ranks a command starts is not known"


def test_shards_that_are_seen_later_are_waited_for(tmp_path: Path) -> None:
    save_share(tmp_path / "step-20", [0, 1], completes=True)
    scan = FileScan(None, {"FERMI_CHECKPOINT_DIR": str(tmp_path), "WORLD_SIZE": "4"}, time.time() - 60)
    for _ in range(2):
        scan.scan()
    assert scan.pop_records() == []
    save_share(tmp_path / "step-20", [2, 3])
    for _ in range(2):
        scan.scan()
    assert "parts" not in only(scan.pop_records())["checkpoint"]


def test_what_torch_distributed_checkpoint_writes_names_the_files_of_all_ranks(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"w": torch.ones(4)}, checkpoint_id=tmp_path / "step-20", no_dist=True)
    assert "parts" not in only(scan_once(tmp_path, is_head=True, world_size=1))
    for path in (tmp_path / "step-20").glob("*.distcp"):
        path.rename(path.with_name("__7_0.distcp"))
    lacking = only(scan_once(tmp_path, is_head=True, world_size=1))
    assert (lacking["parts"], lacking["parts_needed"]) == ("", 1)


def test_one_runner_of_each_node_looks_where_nodes_may_have_disks_of_their_own(tmp_path: Path) -> None:
    spec = {"pulse": True, "cwd": str(tmp_path), "env": {"FERMI_CHECKPOINT_DIR": str(tmp_path)}, "own_files": True}
    scan = FileScan.from_spec({**spec, "ranks": [{"rank": 2, "local_rank": 0}]}, 0.0)
    assert scan
    assert scan.metrics is None
    assert FileScan.from_spec({**spec, "ranks": [{"rank": 3, "local_rank": 1}]}, 0.0) is None
    assert FileScan.from_spec({**spec, "own_files": False, "ranks": [{"rank": 2, "local_rank": 0}]}, 0.0) is None
