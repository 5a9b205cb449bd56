"""Checks what a task runs in place of a reference trainer: what is wrong with the name, what is not Python, and what
starts processes itself although the platform starts one per GPU. Pure."""

import io
import re
import token
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from fermi.jobs.spec import Entrypoint, JobSpec, Problem
from fermi.planning import variables
from fermi.runner.placeholders import VARIABLES, fill_env, fill_text  # noqa: F401 (for others)

MAX_SCRIPT_BYTES = 64 << 10
"""Bytes of a script that are examined."""

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_SHELLS = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish", ".slurm", ".sbatch")
_NOTEBOOK = ".ipynb"
_SHELL_LINE = re.compile(rb"#!.*\b(?:(?:ba|da|z|k|c|tc)?sh|fish)\b")
_PROGRAM = b"\x7fELF"

LAUNCHERS = (
    "torch.distributed.run", "torch.distributed.launcher", "torch.distributed.launch", "accelerate.commands.launch",
    "deepspeed.launcher.runner", "horovod.runner",
)  # fmt: skip
"""Modules that start ranks; of two names that begin alike, the longer one first."""
_COMMANDS = ("torchrun", "accelerate launch", "deepspeed", "horovodrun", "mpirun", "srun")
"""Programs that start ranks, where a script starts one of them."""
_FUNCTIONS = ("elastic_launch", "launch_agent", "notebook_launcher", "debug_launcher")
_SPAWN = ("mp", "multiprocessing", "xmp")
"""Names by which scripts call the modules whose `spawn` starts a process for each device."""
_STARTERS = ("subprocess", "Popen", "system", "execv", "execvp", "execvpe", "execl", "execlp", "posix_spawn")
_MESSAGE_NAMES = ("description", "help", "epilog", "usage", "print", "info", "warning", "error")
"""Parameters and functions whose texts are messages for people."""
_LINE_STARTS = (token.NEWLINE, token.INDENT, token.DEDENT)
"""Tokens before a text that stands alone: a docstring."""
_TEXT_TOKENS = (token.STRING, getattr(token, "FSTRING_MIDDLE", token.STRING))
_RANK_ARGUMENTS = {
    "local-rank": "local_rank", "rank": "rank", "world-size": "world_size", "node-rank": "node_rank",
    "dist-url": "dist_url", "dist-init-method": "dist_url", "init-method": "dist_url", "master-addr": "master",
    "master-port": "port",
}  # fmt: skip
"""Arguments by which a launch by hand gives a process its place, and the placeholders that have it here."""
_DECLARING = ("add_argument", "option", "Option")
"""What declares an argument: argparse, click, typer."""
_ALONE = ("local_rank", "dist_url")
"""Those that mean a process's place without another one beside them: `--rank` may be of an adapter's matrices."""
_ONE_NODE = re.compile(
    r"^[^#\n]*(?:torchrun|torch\.distributed\.(?:run|launch))\b(?:[^#\n]|\\\n){0,1000}?"
    r"\s(--standalone|--nnodes[= ]['\"]?1)(?![\d:])",
    re.MULTILINE,
)
_SHELL_VARIABLE = re.compile(r"\$(?:\{([A-Z_][A-Z0-9_]*)\}|([A-Z_][A-Z0-9_]*))")


def find_problems(entry: Entrypoint | None) -> list[Problem]:
    """Return what is wrong with the entry as the request states it."""
    if entry is None:
        return []
    named = [entry.script, entry.module and f"-m {entry.module}", " ".join(entry.command)]
    if sum(map(bool, named)) != 1:
        return [Problem("entrypoint.script", "ENTRYPOINT_ONE", {"found": ", ".join(filter(None, named)) or "–"})]
    return _find_name_problems(entry) + _find_resume_problems(entry)


def _find_resume_problems(entry: Entrypoint) -> list[Problem]:
    rule = entry.resume
    if rule is None:
        return []
    if bool(rule.args or rule.env) == rule.itself:
        return [Problem("entrypoint.resume", "RESUME_RULE_UNCLEAR")]
    return variables.check_names(rule.env, "entrypoint.resume.env")


def _find_name_problems(entry: Entrypoint) -> list[Problem]:
    if entry.command:
        return [] if entry.command[0].strip() else [Problem("entrypoint.command.0", "ENTRYPOINT_COMMAND_EMPTY")]
    if entry.module and not _MODULE.fullmatch(entry.module):
        near = re.sub(r"[^\w.]+", "_", entry.module.removesuffix(".py").strip("./").replace("/", ".")) or "train"
        return [Problem(entry.field, "ENTRYPOINT_MODULE_NAME", {"found": entry.module, "nearest": near})]
    if entry.script.lower().endswith(_SHELLS):
        return [_build_not_python(entry, "shell")]
    if entry.script.lower().endswith(_NOTEBOOK):
        return [_build_not_python(entry, "notebook")]
    return []


def find_text_problems(entry: Entrypoint | None, text: bytes) -> list[Problem]:
    """Return what is wrong with the file itself. `text`: its beginning; empty where it cannot be read from here."""
    if entry is None or entry.command or find_problems(entry):
        return []
    if text.startswith(_PROGRAM):
        return [_build_not_python(entry, "program")]
    return [_build_not_python(entry, "shell")] if _SHELL_LINE.match(text) else []


def _build_not_python(entry: Entrypoint, kind: str) -> Problem:
    return Problem(entry.field, "ENTRYPOINT_NOT_PYTHON", {"script": entry.script or entry.paths[0], "kind": kind})


def find_warnings(job: JobSpec, text: bytes) -> list[Problem]:
    """Return warnings about the job's own script, of which `text` is the beginning, and about its arguments."""
    entry = job.entrypoint
    found = list(_find_unexpanded(job))
    if entry is None:
        return found
    if entry.starts_ranks:
        if len(job.nodes) > 1 and (option := _find_one_node_option(entry, text)):
            found.append(Problem(entry.field, "LAUNCHER_ONE_NODE", {**option, "nodes": len(job.nodes)}))
        return found
    if launcher := _find_named_launcher(entry):
        named = " ".join(entry.command) or f"-m {entry.module}"
        found.append(Problem(entry.field, "SCRIPT_STARTS_RANKS", {"script": named, "what": launcher}))
    elif starts := find_rank_start(text):
        what, line = starts
        params = {"script": entry.script or entry.paths[0], "what": what, "line": line}
        found.append(Problem(entry.field, "SCRIPT_STARTS_RANKS", params))
    for missing in find_missing_arguments(entry, text):
        params = {"script": entry.script or entry.paths[0], "option": missing.option, "line": missing.line}
        found.append(Problem("entrypoint.args", "SCRIPT_NEEDS_ARGUMENT", {**params, "argument": missing.argument}))
    return found


def _find_one_node_option(entry: Entrypoint, text: bytes) -> dict[str, str] | None:
    """Return the option by which a launcher in the command or its shell script starts ranks for one node alone, and
    where it stands; None without one. `torchrun --standalone` ignores the address of the other nodes (torch 2.13,
    `distributed/run.py`)."""
    shell = next((path for path in entry.paths if path.endswith(_SHELLS)), "")
    for place, lines in ((" ".join(entry.command), " ".join(entry.command)), (shell, text.decode("utf-8", "replace"))):
        if place and (found := _ONE_NODE.search(lines)):
            line = f":{lines.count(chr(10), 0, found.start(1)) + 1}" if place == shell else ""
            return {"option": found[1], "place": f"{place}{line}"}
    return None


def find_missing_arguments(entry: Entrypoint | None, text: bytes) -> list["RankArgument"]:
    """Return the arguments that the script declares for its process's place and that the entry does not give it."""
    if entry is None or entry.starts_ranks or entry.command:
        return []
    given = {word.partition("=")[0] for word in entry.args}
    return [one for one in find_rank_arguments(text) if one.option not in given]


def _find_named_launcher(entry: Entrypoint) -> str | None:
    """Return the launcher that the entry itself names, or None."""
    if entry.module:
        return entry.module if entry.module.startswith(LAUNCHERS) else None
    said = " ".join(entry.command)
    return next((name for name in (*_COMMANDS, *LAUNCHERS) if f" {name} " in f" {said} "), None)


def _find_unexpanded(job: JobSpec) -> Iterator[Problem]:
    """Yield arguments and variables that name a variable as a shell would expand it: no shell does."""
    entry = job.entrypoint or Entrypoint()
    values = [(f"entrypoint.args.{index}", word) for index, word in enumerate(entry.args)]
    shells = any(word == "-c" for word in entry.command)  # a shell expands what it is given
    values += [(f"entrypoint.command.{index}", word) for index, word in enumerate(() if shells else entry.command)]
    values += [(f"env.{name}", value) for name, value in job.env.items()]
    by_variable = {variable: name for name, variable in VARIABLES.items()}
    for field, text in values:
        for found in _SHELL_VARIABLE.finditer(text):
            name = found[1] or found[2]
            if name in job.env or variables.is_reserved(name):
                placeholder = {"placeholder": f"{{{by_variable[name]}}}"} if name in by_variable else {}
                yield Problem(field, "VALUE_NOT_EXPANDED", {"found": found[0], "name": name, **placeholder})
                break


def find_rank_start(text: bytes) -> tuple[str, int] | None:
    """Return what in a Python script starts processes that are ranks themselves, and its line, from 1 on. Comments,
    docstrings and messages do not count. None where nothing does, or the text cannot be read."""
    words = _list_tokens(text)
    starts = any(one.type == token.NAME and one.string in _STARTERS for one in words)
    for index, one in enumerate(words):
        if found := _find_launcher(words, index, starts=starts):
            return found, one.start[0]
    return None


def _list_tokens(text: bytes) -> list[tokenize.TokenInfo]:
    """Return the tokens that matter here; of a text that is cut off, or no Python, those before that."""
    words: list[tokenize.TokenInfo] = []
    try:
        for one in tokenize.tokenize(io.BytesIO(text[:MAX_SCRIPT_BYTES]).readline):
            if one.type in (token.NAME, token.OP, *_TEXT_TOKENS, *_LINE_STARTS):
                words.append(one)
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        pass
    return words


class RankArgument(NamedTuple):
    """An argument by which a script is given its process's place. `name`: the placeholder that has it; `option`: as the
    script spells it."""

    name: str
    option: str
    required: bool
    line: int

    @property
    def argument(self) -> str:
        """The argument that gives each process its own value."""
        return f"{self.option}={{{self.name}}}"


def find_rank_arguments(text: bytes) -> list[RankArgument]:
    """Return the arguments that a script declares for its process's place (`--local_rank`), in their order. None where
    the script reads the place from the variables as well, unless the argument is required."""
    words = _list_tokens(text)
    from_env = any(one.type in _TEXT_TOKENS and one.string.strip("rRbBuUfF\"'") in _PLACES for one in words)
    found: dict[str, RankArgument] = {}
    for index, one in enumerate(words):
        if one.type == token.OP and one.string == "(" and index and words[index - 1].string in _DECLARING:
            options, required = _read_declaration(words, index)
            for option in options:
                name = _RANK_ARGUMENTS.get(option.removeprefix("--").replace("_", "-"), "")
                if name and option.startswith("--") and name not in found and (required or not from_env):
                    found[name] = RankArgument(name, option, required, one.start[0])
    return [one for one in found.values() if one.name in _ALONE or len(found) > 1]


_PLACES = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "env://")
_MAX_DECLARATION_TOKENS = 200


def _read_declaration(words: list[tokenize.TokenInfo], begin: int) -> tuple[list[str], bool]:
    """Return the options that a call declares, and whether it says that they are required. `begin`: of its bracket."""
    options: list[str] = []
    required, depth = False, 0
    for index in range(begin, min(begin + _MAX_DECLARATION_TOKENS, len(words))):
        one = words[index]
        depth += (one.string in "([{") - (one.string in ")]}") if one.type == token.OP else 0
        if depth == 0:
            break
        if depth == 1 and one.type == token.STRING and words[index - 1].string in ("(", ","):
            options.append(one.string.strip("rRbBuUfF\"'"))
        if (
            depth == 1
            and one.string == "required"
            and [each.string for each in words[index + 1 : index + 3]] == ["=", "True"]
        ):
            required = True
    return options, required


def _find_launcher(words: list[tokenize.TokenInfo], index: int, *, starts: bool) -> str | None:
    """Return what starts ranks at this token, or None. `starts`: the script starts programs."""
    one, before = words[index], words[index - 1] if index else None
    after = words[index + 1].string if index + 1 < len(words) else ""
    if one.type == token.NAME and after == "(" and not (before and before.string == "def"):
        if one.string in _FUNCTIONS:
            return one.string
        if one.string == "spawn" and before and before.string == "." and words[index - 2].string in _SPAWN:
            return f"{words[index - 2].string}.spawn"
        return None
    if one.type == token.NAME and before and before.string in ("import", "from"):
        name = "".join(word.string for word in words[index : index + 6 : 1] if word.string not in ("import", "as"))
        return next((module for module in LAUNCHERS if name.startswith(module)), None)
    if (
        one.type not in _TEXT_TOKENS
        or not starts
        or before is None
        or before.type in _LINE_STARTS
        or before.string == "}"
    ):
        return None
    if before.string in ("=", "(") and words[index - 2].string in _MESSAGE_NAMES:
        return None
    said = one.string.lstrip("rRbBuUfF").strip("\"'").strip()
    if said in LAUNCHERS:
        return said
    if said in ("accelerate", "deepspeed") and before.string != "[":
        return None  # the name of a library, as in a comparison
    command = f"{said} launch" if said == "accelerate" else said
    if found := next((name for name in _COMMANDS if f"{command} ".startswith(f"{name} ")), None):
        return found
    return next((module for module in LAUNCHERS if re.match(rf"\S*python\S* -m {re.escape(module)}\b", said)), None)
