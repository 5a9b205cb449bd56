"""How a script takes a checkpoint, as its text shows: proposed, never applied."""

from dataclasses import replace

import pytest

from fermi.jobs.spec import Entrypoint, ResumeRule
from fermi.planning import entry, plugins
from fermi.planning.resume_rules import propose_resume_rule
from fermi.runner import placeholders
from tests.goldens import job

PATH = ("--resume_from_checkpoint", "{path}")


@pytest.mark.parametrize(
    ("text", "args", "found"),
    [
        ("from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)",
         PATH, "HfArgumentParser"),
        ("from transformers import HfArgumentParser, Seq2SeqTrainingArguments\n", PATH, "HfArgumentParser"),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(M)", ("--ckpt_path", "{path}"), "LightningCLI"),
        ('parser.add_argument("--resume_from_checkpoint", type=str, default=None)', PATH, "--resume_from_checkpoint"),
        ('parser.add_argument("-r", "--resume", default="", metavar="PATH", help="a (path)")',
         ("--resume", "{path}"), "--resume"),
        ('parser.add_argument("--resume", action="store_true")', ("--resume",), "--resume"),
        ('@click.option("--ckpt-path", type=click.Path())', ("--ckpt-path", "{path}"), "--ckpt-path"),
        ("init_from = 'scratch'\nexec(open('configurator.py').read())\nif init_from == 'resume': pass",
         ("--init_from=resume",), "init_from"),
        ('parser.add_argument("--load_dir")', ("--load_dir", "{folder}"), "--load_dir"),
        ("from megatron.training import pretrain\npretrain(data)", ("--load", "{folder}"), "Megatron-LM"),
    ],
)  # fmt: skip
def test_known_trainers_and_declared_options_are_recognised(text: str, args: tuple[str, ...], found: str) -> None:
    proposed = propose_resume_rule(text.encode())
    assert proposed
    assert (proposed.rule, proposed.found) == (ResumeRule(args), found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\n",
        "# parser.add_argument('--resume')\n",
        'print("--resume_from_checkpoint")',
        "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('out')).train()",
        "not python at all (((",
        "\x00\xff",
    ],
)
def test_nothing_is_proposed_where_nothing_says_so(text: str) -> None:
    assert propose_resume_rule(text.encode()) is None


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (ResumeRule(), {"entrypoint.resume": "RESUME_RULE_UNCLEAR"}),
        (ResumeRule(("--resume",), itself=True), {"entrypoint.resume": "RESUME_RULE_UNCLEAR"}),
        (ResumeRule((), {"RANK": "1"}), {"entrypoint.resume.env.RANK": "ENV_RESERVED"}),
        (ResumeRule((), {"a b": "1"}), {"entrypoint.resume.env.a b": "ENV_NAME_INVALID"}),
        (ResumeRule(itself=True), {}),
        (ResumeRule(("--resume={path}",), {"STEP": "{step}"}), {}),
    ],
)
def test_a_rule_that_says_nothing_or_two_things_is_refused(rule: ResumeRule, fields: dict[str, str]) -> None:
    found = entry.find_problems(Entrypoint("train.py", resume=rule))
    assert {problem.field: problem.code for problem in found} == fields


RULE = ResumeRule(("--resume={path}", "--at", "{step}", "--load={folder}", "--name={name}"), {"RESUME": "{path}"})


def test_an_attempt_that_resumes_gets_the_arguments_and_variables_of_the_rule() -> None:
    entrypoint = Entrypoint("train.py", ("--epochs", "3"), resume=RULE)
    made = replace(job("env-001"), entrypoint=entrypoint)
    first = made.for_attempt(1, master_port=1, resume_from="")
    second = made.for_attempt(2, master_port=1, resume_from="/data/c/global_step100", resume_step=100)
    plans = [plugins.get_framework("pytorch-ddp").plan(one).nodes[0] for one in (first, second)]
    assert plans[0].command[-2:] == ("--epochs", "3")
    assert "RESUME" not in plans[0].env
    env = {name: str(value) for name, value in plans[1].env.items()}
    words = [placeholders.fill_text(str(word), env) for word in plans[1].command[-5:]]
    assert words == ["--resume=/data/c/global_step100", "--at", "100", "--load=/data/c", "--name=global_step100"]
    assert placeholders.fill_env(env)["RESUME"] == "/data/c/global_step100"


def test_a_rule_is_not_applied_where_the_script_looks_itself_or_the_newest_is_asked_for() -> None:
    for rule, path in ((ResumeRule(itself=True), "/data/c"), (RULE, "auto")):
        made = replace(job("env-001"), entrypoint=Entrypoint("train.py", resume=rule))
        assert made.for_attempt(2, master_port=1, resume_from=path).resume_rule is None


@pytest.mark.parametrize(
    ("rule", "resume_from", "expected"),
    [
        (ResumeRule(("--init_from=resume",)), "/trees/task-1/code/out/ckpt.pt", True),
        (ResumeRule(("--at={step}",), {"RESUME": "1"}), "/trees/task-1/code/out/ckpt.pt", True),
        (ResumeRule(itself=True), "/trees/task-1/code/out/ckpt.pt", True),
        (ResumeRule(PATH), "/trees/task-1/code/out/ckpt.pt", False),
        (ResumeRule(env={"RESUME": "{folder}"}), "/trees/task-1/code/out/ckpt.pt", False),
        (ResumeRule(("--init_from=resume",)), "", False),
        (None, "/trees/task-1/code/out/ckpt.pt", False),
    ],
)
def test_a_runner_is_told_that_a_script_looks_for_its_checkpoint_itself(
    rule: ResumeRule | None, resume_from: str, expected: bool
) -> None:
    entrypoint = Entrypoint("train.py", (), resume=rule)
    options = replace(job("env-001"), entrypoint=entrypoint, resume_from=resume_from).build_watch_options()
    assert options.get("resumes_in_place", False) is expected
