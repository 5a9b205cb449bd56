"""Records that processes of a rank put into its queue: from which processes, how many, how large."""

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.metrics.parameters import flatten_parameters
from fermi.probe import records, setup
from fermi.runner import rank

HEAD = "import sys, _fermi_probe.records\nadd_record = _fermi_probe.records.add_record\n"


@pytest.fixture
def run(tmp_path: Path) -> Iterator["Run"]:
    made = Run(tmp_path)
    yield made
    made.given.close()


class Run:
    """Runs a script as a rank to its end, and returns what it has put."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given, self.log = folder, setup.create_rank_files(), folder / "log"

    def __call__(self, code: str, **env: str) -> list[dict[str, Any]]:
        (self.folder / "train.py").write_text(HEAD + textwrap.dedent(code))
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        pid = rank.start_rank(
            0, [sys.executable, "train.py"], {**os.environ, "RANK": "2", **env}, str(self.folder), output,
            fork=False, confinement=None, signals=(), inherited=(), pulse=self.given,
        )  # fmt: skip
        assert os.waitpid(pid, 0)[1] == 0, self.log.read_text()
        size = os.fstat(self.given.records).st_size
        return [json.loads(line) for line in os.pread(self.given.records, size, 0).splitlines()]


def test_a_record_has_its_time(run):
    [one] = run("add_record({'source': 'wandb', 'step': 3, 'values': {'loss': 2.5}})")
    assert one.pop("time") > 1.7e9
    assert one == {"source": "wandb", "step": 3, "values": {"loss": 2.5}}


def test_processes_that_a_rank_forks_or_starts_put_records_as_well(run):
    found = run(
        """
        import multiprocessing, os, subprocess
        if __name__ == "__main__":
            add_record({"source": "first"})
            for how in ("fork", "spawn"):
                child = multiprocessing.get_context(how).Process(target=add_record, args=({"source": how},))
                child.start(); child.join()
            code = "import _fermi_probe.records as r; r.add_record({'source': 'program'})"
            subprocess.run([sys.executable, "-c", code])
            subprocess.run([sys.executable, "-c", code], env={**os.environ, "RANK": "5"}, close_fds=False)
        """
    )
    assert [(one["source"], one.get("rank")) for one in found] == [
        ("first", None), ("fork", None), ("spawn", None), ("program", None), ("program", 5),
    ]  # fmt: skip


def test_after_the_first_ten_thousand_the_newest_of_each_kind_is_kept(run):
    found = run(
        """
        for step in range(12_000):
            add_record({"source": "wandb", "step": step, "values": {"loss": 1.0}})
        add_record({"source": "wandb", "step": step, "values": {"val": 2.0}})
        add_record({"source": "wandb", "parameters": {"lr": 0.1}})
        """
    )
    assert [one["step"] for one in found[:10_000]] == list(range(10_000))
    thinned = found[10_000:]
    assert len(thinned) < 100
    assert {"loss": 1.0} in [one["values"] for one in thinned if one.get("step") == 11_999]
    assert thinned[-1]["parameters"] == {"lr": 0.1}
    assert thinned[-2]["values"] == {"val": 2.0}
    assert 1900 < thinned[-1]["left_out"] < 2000


def test_a_large_record_is_split_and_what_is_too_long_left_out(run):
    found = run(
        """
        values = {f"layer.{n}/" + "w" * 40: n + 0.5 for n in range(200)}
        parameters = {"text": "x" * 5000, "\\u635f\\u5931": "\\u6b65"}
        add_record({"source": "wandb", "step": 3, "values": values, "parameters": parameters})
        add_record({"source": "wandb", "values": {"n" * 5000: 1.0}, "media": {"path": "\\n" * 5000}})
        """
    )
    assert all(len(json.dumps(one, separators=(",", ":"))) < records.MAX_RECORD_BYTES for one in found)
    merged: dict[str, Any] = {}
    for one in found:
        assert one["source"] == "wandb"
        merged.update(one.get("values", {}))
    assert merged["layer.199/" + "w" * 40] == 199.5
    assert {one["step"] for one in found if "values" in one and len(one["values"]) > 1} == {3}
    [parameters] = [one["parameters"] for one in found if "parameters" in one]
    assert (len(parameters["text"]), parameters["损失"]) == (records.MAX_TEXT_LENGTH, "步")


def test_nested_parameters_are_divided_where_they_are_large(run):
    found = run(
        """
        inner = {f"option_{n}": "x" * 60 for n in range(200)}
        add_record({"source": "wandb", "parameters": {"model": {"config": inner}, "lr": 0.1}})
        """
    )
    assert len(found) > 3
    merged: dict[str, Any] = {}
    for one in found:
        merged.update(flatten_parameters(one["parameters"]))
    assert merged == {"lr": 0.1, **{f"model.config.option_{n}": "x" * 60 for n in range(200)}}


def test_a_queue_that_nobody_reads_stays_small(run):
    found = run("for step in range(9000): add_record({'source': 'wandb', 'parameters': {'text': 'x' * 1000}})")
    size = os.fstat(run.given.records).st_blocks * 512
    assert records.MAX_QUEUE_BYTES <= size < records.MAX_QUEUE_BYTES + (1 << 20)
    assert len(found) < 9000


def test_what_cannot_be_written_is_left_out_without_an_error(run):
    circle = "a = {}; a['a'] = a; "
    found = run(
        circle + "add_record({'values': a}); add_record(None); "
        "add_record({'values': {1: float('nan')}, 'parameters': {'x': {1}}})"
    )
    [one] = found
    assert (str(one["values"]), one["parameters"]) == ("{'1': nan}", {"x": ["1"]})


def test_media_are_kept_in_the_outputs(run, tmp_path):
    run("print(_fermi_probe.records.media_folder())", FERMI_OUTPUT_DIR=str(tmp_path / "out"))
    assert run.log.read_text().strip() == str(tmp_path / "out" / "media")
    assert (tmp_path / "out" / "media").is_dir()
    run("print(repr(_fermi_probe.records.media_folder()))", FERMI_OUTPUT_DIR="")
    assert run.log.read_text().endswith("''\n")


def test_a_process_without_a_queue_ignores_records(run):
    assert run("import os, subprocess\nsubprocess.run([sys.executable, '-c', "
               "'import fermi.probe.records as r; r.add_record({1: 2}); print(r.media_folder())'])",
               PYTHONPATH=str(Path(__file__).parents[3] / "platform"), FERMI_OUTPUT_DIR="") == []  # fmt: skip
