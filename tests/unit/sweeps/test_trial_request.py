"""How a trial's parameters come to its script."""

from typing import Any

from fermi.sweeps.trial_request import build_trial_request, fill_words, format_command, lacks_parameters

NAMES = ["lr", "layers", "nesterov", "momentum"]
CHOSEN = {"lr": 1e-05, "layers": 4, "nesterov": True}


def build(**request: Any) -> dict[str, Any]:
    return build_trial_request(request, NAMES, "sweep-a", "rates", 7, CHOSEN)


def test_parameters_are_hyperparameters_and_variables() -> None:
    found = build(hyperparameters={"lr": 1, "steps": 5}, env={"A": "b"})
    assert found["hyperparameters"] == {"steps": 5, **CHOSEN}
    assert found["env"] == {
        "A": "b",
        "FERMI_PARAM_LR": "1e-05",
        "FERMI_PARAM_LAYERS": "4",
        "FERMI_PARAM_NESTEROV": "true",
        "FERMI_SWEEP_ID": "sweep-a",
        "FERMI_TRIAL": "7",
    }


def test_a_trial_is_named_after_its_number_and_fills_gaps() -> None:
    found = build()
    assert (found["taskName"], found["priority"], found["preemptible"]) == ("rates #7", "low", True)
    found = build(taskName="t" * 100, priority="high", preemptible=False)
    assert (len(found["taskName"]), found["priority"], found["preemptible"]) == (100, "high", False)
    assert found["taskName"].endswith(" #7")


def test_words_of_the_script_are_filled_in() -> None:
    entry = {"script": "train.py", "args": ["--lr={lr}", "--momentum={momentum}", "{other}", "${sweep.args}"]}
    assert build(entrypoint=entry)["entrypoint"]["args"] == [
        "--lr=1e-05", "{other}", "--lr=1e-05", "--layers=4", "--nesterov=true",
    ]  # fmt: skip
    assert fill_words(["${sweep.flags}"], NAMES, {**CHOSEN, "x": False}) == [
        "--lr=1e-05", "--layers=4", "--nesterov",
    ]  # fmt: skip
    assert fill_words(["${sweep.pairs}", 5], NAMES, CHOSEN) == ["lr=1e-05", "layers=4", "nesterov=true", 5]


def test_a_script_that_gets_no_parameter_by_its_arguments_is_known() -> None:
    assert not lacks_parameters({"entrypoint": {"script": "t.py", "args": ["${sweep.args}"]}}, NAMES)
    assert not lacks_parameters({"entrypoint": {"command": ["torchrun", "t.py", "--lr={lr}"]}}, NAMES)
    assert lacks_parameters({"entrypoint": {"script": "t.py", "args": ["{other}"]}}, NAMES)
    assert lacks_parameters({"entrypoint": {"script": "t.py"}}, NAMES)
    assert not lacks_parameters({}, NAMES), "the platform's trainers have hyperparameters"


def test_a_command_shows_what_an_own_script_is_started_with() -> None:
    entry = {"script": "train.py", "args": ["--lr={lr}", "--name", "a b"]}
    assert format_command(build(entrypoint=entry)) == "train.py --lr=1e-05 --name 'a b'"
    assert format_command({"entrypoint": {"module": "pkg.train", "args": ["x"]}}) == "-m pkg.train x"
    assert format_command({"entrypoint": {"command": ["torchrun", "t.py"], "args": ["x"]}}) == "torchrun t.py x"
    for broken in ({}, {"entrypoint": None}, {"entrypoint": 5}, {"entrypoint": {"args": 5, "command": "x"}}):
        assert format_command(broken) == ""
