"""What a pasted launch command means, as the API answers it, and what it refuses."""

from typing import Any

import pytest

from tests.api.conftest import Api

pytestmark = pytest.mark.database

PATH = "/training-tasks/launch-command"


def read(api: Api, text: Any) -> Any:
    return api.post(PATH, {"text": text})


def test_a_launch_command_is_answered_as_a_request(owner: Api) -> None:
    text = "OMP_NUM_THREADS=4 torchrun --nproc_per_node=8 --nnodes 2 --rdzv_endpoint=$H:1 train.py --lr 1e-4 > log"
    found = read(owner, text)
    assert found.status == 200
    notes = found.data.pop("notes")
    assert found.data == {
        "entrypoint": {"script": "train.py", "args": ["--lr", "1e-4"], "processes": "gpu"},
        "asIs": {
            "command": ["torchrun", "--nproc_per_node=8", "--nnodes", "2", "--rdzv_endpoint=$H:1", "train.py",
                        "--lr", "1e-4"],
            "processes": "node",
        },
        "env": {"OMP_NUM_THREADS": "4"},
        "launcher": "torchrun",
        "framework": "",
        "gpusPerNode": 8,
        "nodes": 2,
        "maxRestarts": None,
        "unclear": [],
    }  # fmt: skip
    assert [note["code"] for note in notes] == [
        "COMMAND_COUNT_CHOSEN", "COMMAND_MEETING_CHOSEN", "COMMAND_OUTPUT_KEPT",
    ]  # fmt: skip
    assert notes[1]["message"].startswith("--rdzv_endpoint=$H:1")


def test_what_is_not_understood_is_proposed_as_it_is(owner: Api) -> None:
    found = read(owner, "docker run image python train.py").data
    assert found["entrypoint"] == found["asIs"]
    assert found["unclear"][0]["code"] == "COMMAND_PROGRAM_UNKNOWN"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "COMMAND_TEXT_EMPTY"),
        ("pip install torch", "COMMAND_TEXT_STARTS_NOTHING"),
        ("python 'a", "COMMAND_TEXT_UNCLOSED"),
        ("python a.py " + "中" * 6000, "COMMAND_TEXT_TOO_LONG"),
    ],
    ids=["empty", "starts nothing", "unclosed", "too long"],
)
def test_a_text_that_is_no_command_is_refused_with_a_code(owner: Api, text: str, code: str) -> None:
    refused = read(owner, text)
    assert refused.status == 400
    assert refused.error == code


def test_the_text_is_bounded_and_asked_for(owner: Api, anonymous: Api) -> None:
    assert read(owner, "a" * 20_000).status == 400
    assert owner.post(PATH, {}).status == 400
    assert read(owner, ["torchrun", "train.py"]).status == 400
    assert read(anonymous, "torchrun train.py").status == 401
