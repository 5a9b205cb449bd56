"""Proposes how a script is told to resume from a checkpoint, by what it imports and which arguments it declares. Pure.

What each library documents: Transformers' `TrainingArguments.resume_from_checkpoint`, which HfArgumentParser makes an
argument (training_args.py); LightningCLI's `--ckpt_path` (lightning/pytorch/cli.py); nanoGPT's `--init_from=resume`,
with which it reads its own newest checkpoint (train.py and configurator.py); Megatron-LM's `--load`, which names the
folder with the tracker file (megatron/training/arguments.py).
"""

import io
import token
import tokenize
from dataclasses import dataclass

from fermi.jobs.spec import ResumeRule
from fermi.planning.entry import MAX_SCRIPT_BYTES

_DECLARING = ("add_argument", "option", "Option")
"""What declares an argument: argparse, click, typer."""
_PATH_OPTIONS = (
    "resume-from-checkpoint", "resume-from", "resume-checkpoint", "resume-path", "resume-ckpt", "ckpt-path",
    "from-checkpoint", "load-checkpoint", "checkpoint-path", "resume",
)  # fmt: skip
"""Options that take a checkpoint, the more certain ones first."""
_FOLDER_OPTIONS = ("load-dir", "load")
"""Options that take the folder in which checkpoints are."""
_MAX_CALL_TOKENS = 200


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """A rule, and by what it was found: an option of the script, or a library."""

    rule: ResumeRule
    found: str


def propose_resume_rule(text: bytes) -> ProposedRule | None:
    """Return how a Python script takes a checkpoint; None where nothing says so. `text`: its beginning."""
    words = _list_words(text)
    names = {one.string for one in words if one.type == token.NAME}
    texts = {one.string.strip("rRbBuUfF").strip("\"'") for one in words if one.type == token.STRING}
    if "HfArgumentParser" in names and any(name.endswith("TrainingArguments") for name in names):
        return _take_path("--resume_from_checkpoint", "HfArgumentParser")
    if "LightningCLI" in names:
        return _take_path("--ckpt_path", "LightningCLI")
    options = _list_options(words)
    for name in _PATH_OPTIONS:
        if name in options:
            option, is_switch = options[name]
            return ProposedRule(ResumeRule((option,)), option) if is_switch else _take_path(option, option)
    if "init_from" in names and "resume" in texts and ("exec" in names or "init-from" in options):
        return ProposedRule(ResumeRule(("--init_from=resume",)), "init_from")
    for name in _FOLDER_OPTIONS:
        if name in options and not options[name][1]:
            return ProposedRule(ResumeRule((options[name][0], "{folder}")), options[name][0])
    if "megatron" in names and "pretrain" in names:
        return ProposedRule(ResumeRule(("--load", "{folder}")), "Megatron-LM")
    return None


def _take_path(option: str, found: str) -> ProposedRule:
    return ProposedRule(ResumeRule((option, "{path}")), found)


def _list_words(text: bytes) -> list[tokenize.TokenInfo]:
    """Return the names, operators and texts; of what is cut off, or no Python, those before that."""
    words: list[tokenize.TokenInfo] = []
    try:
        for one in tokenize.tokenize(io.BytesIO(text[:MAX_SCRIPT_BYTES]).readline):
            if one.type in (token.NAME, token.OP, token.STRING):
                words.append(one)
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        pass
    return words


def _list_options(words: list[tokenize.TokenInfo]) -> dict[str, tuple[str, bool]]:
    """Return the options that a script declares, by their names with dashes: as it spells them, and whether they take
    no value."""
    found: dict[str, tuple[str, bool]] = {}
    for index, one in enumerate(words):
        if one.string != "(" or not index or words[index - 1].string not in _DECLARING:
            continue
        depth, options, is_switch = 0, list[str](), False
        for word in words[index : index + _MAX_CALL_TOKENS]:
            depth += (word.string in ("(", "[", "{")) - (word.string in (")", "]", "}"))
            if depth == 0:
                break
            said = word.string.strip("\"'") if word.type == token.STRING else ""
            if said.startswith("--"):
                options.append(said)
            is_switch = (
                is_switch
                or said in ("store_true", "store_false")
                or word.string in ("is_flag", "BooleanOptionalAction")
            )
        for option in options:
            found.setdefault(option.removeprefix("--").replace("_", "-"), (option, is_switch))
    return found
