"""However often a request is lost, broken off or repeated, the log there is the log here."""

import json
import random
from pathlib import Path

import pytest

from fermi.agent.log_upload import CHUNK_BYTES, ship_log, ship_logs
from fermi.agent.runs import RankRun
from fermi.client import FermiError, NotFoundError, UnreachableError
from fermi.runner import files


class There:
    """The server's side: appends what lies beyond what it has."""

    def __init__(self) -> None:
        self.data = b""
        self.requests = 0

    def append(self, log: str, offset: int, data: bytes) -> int:
        assert log == "task-x/1/3"
        self.requests += 1
        if offset <= len(self.data):
            self.data += data[len(self.data) - offset :]
        return len(self.data)


@pytest.fixture
def run(tmp_path: Path) -> RankRun:
    folder = tmp_path / "task-x-1"
    folder.mkdir()
    log = tmp_path / "logs" / "task-x" / "1" / "3.log"
    log.parent.mkdir(parents=True)
    spec = {"name": folder.name, "node_rank": 0, "ranks": [{"rank": 3, "local_rank": 0, "env": {}, "log": str(log)}]}
    (folder / "rank.json").write_text(json.dumps(spec))
    return RankRun(folder)


def append_log(run: RankRun, data: bytes) -> None:
    assert run.log is not None
    with run.log.open("ab") as file:
        file.write(data)


def finish(run: RankRun) -> None:
    ended = files.build_first_status(run.name, 0, "exited")
    rank = {"rank": 3, "pid": None, "start_time": None, "state": "exited", "exit_code": 0, "ended_at": 1.0}
    files.write_json_atomically(files.RunnerPaths(str(run.spec_path)).status, {**ended, "ranks": [rank]})
    run.update_state()


def test_a_log_is_uploaded_as_it_grows(run):
    there = There()
    ship_log(run, there.append)
    assert there.requests == 0
    for text in (b"one\n", b"", b"two\n" * CHUNK_BYTES):
        append_log(run, text)
        ship_log(run, there.append)
    assert there.data == b"one\n" + b"two\n" * CHUNK_BYTES
    assert run.left
    finish(run)
    assert run.left
    ship_log(run, there.append)
    assert not run.left
    before = there.requests
    ship_log(RankRun(run.folder), there.append)
    assert there.requests == before


def test_nothing_is_lost_or_duplicated_on_a_bad_network(run):
    chance, there, whole = random.Random(7), There(), b""

    def append(log: str, offset: int, data: bytes) -> int:
        match chance.randrange(4):
            case 0:
                raise UnreachableError("the request was lost")
            case 1:  # half of it arrived and was stored
                there.append(log, offset, data[: len(data) // 2])
                raise UnreachableError("cut in the middle")
            case 2:
                there.append(log, offset, data)
                raise UnreachableError("the answer was lost")
        return there.append(log, offset, data)

    for number in range(60):
        text = b"line %d\n" % number * 20_000
        whole += text
        append_log(run, text)
        if number % 20 == 19:
            run = RankRun(run.folder)  # the agent was killed, too
        ship_logs([run], append)
    finish(run)
    while run.left:
        ship_logs([run], append)
    assert there.data == whole


def test_a_server_that_lost_the_end_of_a_log_gets_it_again(run):
    there = There()
    append_log(run, b"0123456789")
    ship_log(run, there.append)
    there.data = b"0123"
    append_log(run, b"ab")
    ship_log(run, there.append)
    assert there.data == b"0123456789ab"


def test_a_new_agent_asks_for_the_servers_offset_first(run):
    there = There()
    there.data = b"first"
    append_log(run, b"first, second")
    ship_log(RankRun(run.folder), there.append)
    assert there.data == b"first, second"


def test_an_unwanted_log_is_kept_while_it_grows_and_deleted_at_its_end(run):
    def append(log: str, offset: int, data: bytes) -> int:
        raise NotFoundError("no such task")

    append_log(run, b"text")
    with pytest.raises(NotFoundError):
        ship_log(run, append)
    assert run.left
    finish(run)
    ship_log(run, append)
    assert not run.left


def test_uploads_to_a_refusing_server_are_given_up(run):
    append_log(run, b"text")
    with pytest.raises(FermiError, match="took nothing"):
        ship_log(run, lambda log, offset, data: 0)
