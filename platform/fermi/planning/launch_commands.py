"""Recognizes what a pasted launch command means: which script it starts, with which arguments, how many processes, and
which of its options the platform chooses itself. Runs and expands nothing. Pure.

    CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --rdzv_endpoint=$HOST:29500 train.py --lr 1e-4

is the script train.py with the arguments --lr 1e-4, one process per GPU, 2 GPUs on each node; the platform chooses the
devices and where ranks meet. Each thing that is left out, or becomes something else, has a note.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fermi.jobs.spec import Problem
from fermi.planning import entry, launchers, variables
from fermi.planning.launchers import Option, Options, parse_options
from fermi.planning.shell_text import Command, Piece, ShellTextError, Word, parse_commands

MAX_EXPANDED_CHARACTERS = 64 << 10
"""Characters of all words after variables of the text have been replaced."""
MAX_NOTES = 60
MAX_DEPTH = 8
"""Commands within commands: `srun bash -c "torchrun …"`."""
MAX_COUNT = 1_000_000

Processes = Literal["gpu", "node"]
ReadScript = Callable[[str], bytes]

PLACEHOLDERS = {
    "SLURM_PROCID": "rank", "SLURM_LOCALID": "local_rank", "SLURM_NODEID": "node_rank", "SLURM_NTASKS": "world_size",
    "SLURM_NPROCS": "world_size", "SLURM_NNODES": "nnodes", "SLURM_JOB_NUM_NODES": "nnodes",
    "SLURM_NTASKS_PER_NODE": "nproc_per_node", "SLURM_GPUS_ON_NODE": "nproc_per_node",
    "SLURM_GPUS_PER_NODE": "nproc_per_node", "OMPI_COMM_WORLD_RANK": "rank", "OMPI_COMM_WORLD_LOCAL_RANK": "local_rank",
    "OMPI_COMM_WORLD_SIZE": "world_size", "PMI_RANK": "rank", "PMI_SIZE": "world_size", "RANK": "rank",
    "LOCAL_RANK": "local_rank", "NODE_RANK": "node_rank", "GROUP_RANK": "node_rank", "WORLD_SIZE": "world_size",
    "LOCAL_WORLD_SIZE": "nproc_per_node", "MASTER_ADDR": "master", "MASTER_PORT": "port",
}  # fmt: skip
"""The placeholder that has the value of a launcher's variable."""

_MEETING = launchers.list_names(
    "rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone master-addr master-port node-rank local-addr role"
    " main-process-ip main-process-port machine-rank same-network deepspeed-hostfile deepspeed-inclusion-filter"
    " deepspeed-exclusion-filter deepspeed-multinode-launcher H hostfile hosts host nodelist exclude include"
    " launcher launcher-args force-multi no-ssh no-ssh-check ssh-port ssh-identity-file main-address main-port"
    " network-interface network-interfaces machinefile default-hostfile rankfile host-discovery-script"
    " mpirun-hostfile"
)
_COUNTS = launchers.list_names(
    "nnodes nproc-per-node num-processes num-machines num-nodes num-gpus num-accelerators gpu-ids multi-gpu devices np"
    " num-proc n c N npernode ppn perhost pernode nodes ntasks ntasks-per-node gpus G gpus-per-node gpus-per-task gres"
    " slots-per-host map-by min-np min-num-proc max-np max-num-proc"
)
_LOGS = launchers.list_names(
    "log-dir r redirects t tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters logs-specs"
    " output-filename enable-each-rank-log output error tag-output timestamp-output label"
)
_LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "torch.distributed.launcher": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate_cli",
    "accelerate": "accelerate_cli",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
    "horovod.runner": "horovodrun",
    "horovod.runner.launch": "horovodrun",
    "lightning_fabric": "fabric",
    "lightning.fabric.cli": "fabric",
}
_MPI = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_RUNNERS = ("uv", "poetry", "pdm", "pipenv", "pixi", "hatch", "rye", "conda", "mamba", "micromamba")
_KEYWORDS = launchers.list_names(
    "for while until if then else elif fi do done case esac function select { } [[ (( coproc"
)
_INTERPRETER = re.compile(
    r"(?:.*/)?(?:python|pypy)(?:\d+(?:\.\d+)*)?t?(?:\.exe)?|\$\{?PYTHON\}?|(?:.*/)?torchrun-python"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_PROGRAM = re.compile(r"[\w.$~{][\w.+/~${}@:-]*", re.ASCII)
_SHELL_SCRIPT = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch")
_NAMED_ARGUMENTS = {
    "dist-url": "{dist_url}", "dist-init-method": "{dist_url}", "init-method": "{dist_url}",
    "local-rank": "{local_rank}", "node-rank": "{node_rank}", "machine-rank": "{node_rank}",
    "world-size": "{world_size}", "master-addr": "{master}", "master-port": "{port}", "dist-rank": "{rank}",
}  # fmt: skip
"""Arguments of scripts with which a launch by hand tells each process its place, and what fills them."""
_BESIDE_RANK = ("world-size", "dist-url", "init-method", "dist-init-method", "master-addr")
_OWN_PROCESSES = "multiprocessing-distributed"
"""Of torchvision's reference script for ImageNet and what was made from it: `--world-size` counts nodes then."""


_SECRET_NAME = re.compile(r".*(?:API_?KEY|ACCESS_KEY|TOKEN|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH")
_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_SILENT = launchers.list_names(
    "set shopt ulimit echo printf clear sleep wait nvidia-smi ls cat pwd which trap true false hash date hostname"
    " whoami ps jobs fg bg disown umask alias unset head tail less grep test [ history"
)
_ENVIRONMENT_FILE = re.compile(r".*(?:activate|bashrc|profile|conda\.sh|env[^/]*\.sh|\.env|setvars\.sh)")
_SUBMITTERS = ("sbatch", "salloc", "qsub", "bsub", "condor_submit", "sky", "ray")


@dataclass(frozen=True, slots=True)
class ProposedEntrypoint:
    """The request's `entrypoint`: one of script, module and command. `processes`: one for each GPU, or each node."""

    script: str = ""
    module: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    processes: Processes = "gpu"

    def to_request(self) -> dict[str, Any]:
        """Return the fields that have values, as the API spells them."""
        found: dict[str, Any] = {"processes": self.processes} if self.processes != "gpu" else {}
        if self.command:
            return {"command": [*self.command], **found}
        named = {"module": self.module} if self.module else {"script": self.script}
        return {**named, "args": [*self.args], **found}


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """What a launch command means. `launcher`: the program that starts ranks in it, empty without one; `framework`,
    `gpus_per_node`, `nodes`, `max_restarts`: what it asks for, empty or None where it names none; `notes`: what was
    left out or replaced, and why; `unclear`: why it is run as it is, none if it was understood; `as_is`: the command
    itself, once on each node."""

    entrypoint: ProposedEntrypoint
    as_is: ProposedEntrypoint
    env: dict[str, str]
    launcher: str = ""
    framework: str = ""
    gpus_per_node: int | None = None
    nodes: int | None = None
    max_restarts: int | None = None
    notes: tuple[Problem, ...] = ()
    unclear: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Reading:
    """What is known of one command while it is read. `before`: words of programs that stay before it; `ranked`: a
    launcher starts it once for each rank; `folder`: where it starts."""

    original: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    notes: list[Problem] = field(default_factory=list)
    unclear: list[Problem] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=lambda: ["python"])
    launcher: str = ""
    framework: str = ""
    gpus: int | None = None
    nodes: int | None = None
    total: int | None = None
    restarts: int | None = None
    script: str = ""
    module: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    processes: Processes = "gpu"
    ranked: bool = False
    depth: int = 0

    def add_note(self, code: str, **params: object) -> None:
        self.notes.append(Problem("command", code, params))

    def fail(self, code: str, **params: object) -> None:
        self.unclear.append(Problem("command", code, params))

    def list_words(self) -> list[str]:
        """Return the words that would be run."""
        if self.unclear:
            return self.original
        if self.command:
            return [*self.before, *self.command]
        words = ["-m", self.module] if self.module else [self.script]
        return [*self.before, *self.python, *words, *self.args]


def recognize_command(text: str, read_script: ReadScript | None = None) -> LaunchCommand:
    """Return what a pasted text starts. `read_script`: returns the beginning of a script, empty where there is none (it
    raises nothing); without it no script is read. Raise ShellTextError for a text that starts nothing."""
    commands = parse_commands(text)
    if not commands:
        raise ShellTextError("COMMAND_TEXT_EMPTY")
    shell = _Shell(read_script)
    for command in commands:
        shell.run(command)
    return shell.finish(text)


def recognize_words(words: Sequence[str], read_script: ReadScript | None = None) -> LaunchCommand:
    """Return what a command means whose words a shell has split already. Raise ShellTextError without words."""
    if len(words) == 1 and re.search(r"\s", words[0]):
        return recognize_command(words[0], read_script)
    if not words:
        raise ShellTextError("COMMAND_TEXT_EMPTY")
    shell = _Shell(read_script)
    quoted = (not _ASSIGNMENT.match(word) for word in words)
    shell.run(Command([Word([Piece("text", word, one)]) for word, one in zip(words, quoted, strict=True)]))
    return shell.finish(" ".join(words))


class _Shell:
    """Follows commands as a shell would, as far as that is known without running anything."""

    def __init__(self, read_script: ReadScript | None, depth: int = 0) -> None:
        self.read_script, self.depth = read_script, depth
        self.variables: dict[str, list[str] | None] = {}  # None: a value that only a shell can compute
        self.exported: dict[str, str] = {}
        self.folder = ""
        self.cloned: set[str] = set()
        self.found: list[_Reading] = []
        self.notes: list[Problem] = []
        self.strange = ""
        self.unexpanded: set[str] = set()
        self.filled: dict[str, str] = {}
        self.size = 0
        self.piped = False

    def finish(self, text: str) -> LaunchCommand:
        """Return what was found to be started. Raise ShellTextError if nothing was."""
        if not self.found and not self.strange:
            raise ShellTextError("COMMAND_TEXT_STARTS_NOTHING")
        chosen = self.choose()
        if self.strange or chosen is None:
            chosen = _Reading(original=["bash", "-c", text.strip()])
            chosen.fail("COMMAND_SHELL_SYNTAX", found=self.strange)
        else:
            chosen.notes = [*self.notes, *chosen.notes]
        return self._build(chosen)

    def choose(self) -> _Reading | None:
        """Return the command that trains: the first that starts ranks, or the last one."""
        chosen = next((one for one in self.found if one.launcher), self.found[-1] if self.found else None)
        for other in self.found:
            if chosen and other is not chosen:
                chosen.add_note("COMMAND_OTHER_COMMAND", command=_shorten(" ".join(other.original)))
        return chosen

    def run(self, command: Command) -> None:
        piped, self.piped = self.piped, command.end in ("|", "|&")
        if command.strange or (command.words and command.words[0].unquoted_text in _KEYWORDS):
            self.strange = self.strange or command.strange or command.words[0].unquoted_text
            return
        env: dict[str, str] = {}
        rest = [*command.words]
        while rest and (name := _find_assignment(rest[0])):
            value = self._assign(name, rest.pop(0))
            if value is not None:
                env[name] = value
        words = [text for word in rest for text in self._expand(word)]
        if not words:
            return
        if words[0] in ("export", "declare", "typeset", "local", "readonly", "setenv"):
            self._export(words[1:])
        elif words[0] == "cd":
            self._change_folder(words[1:])
        elif self._is_setup(words):
            if posixpath.basename(words[0]) not in _SILENT and not piped:
                self.notes.append(Problem("command", "COMMAND_NOT_RUN", {"command": _shorten(" ".join(words))}))
        elif _PROGRAM.fullmatch(words[0]) or "/" in words[0] or words[0].lower().endswith((".py", *_SHELL_SCRIPT)):
            self._start(command, words, env, piped=piped)

    def _start(self, command: Command, words: list[str], env: dict[str, str], *, piped: bool) -> None:
        reading = _Reading(original=words, env={**self.exported, **env}, folder=self.folder, depth=self.depth)
        _read(reading, words, self.read_script)
        if not (reading.script or reading.module or reading.command or reading.unclear):
            return
        ends = [*command.redirects, *([command.end] if command.end in ("&", "|", "|&") else [])]
        if ends and reading.command[:1] != ["tee"]:
            reading.add_note("COMMAND_OUTPUT_KEPT", option=" ".join(ends))
        if piped:
            if reading.unclear:
                return  # what reads the output of the command before
            reading.add_note("COMMAND_NO_INPUT", command=_shorten(" ".join(words)))
        self.found.append(reading)

    def _is_setup(self, words: list[str]) -> bool:
        """Return whether words prepare a start only."""
        name = posixpath.basename(words[0])
        if name == "git" and "clone" in words:
            self.cloned.add(posixpath.basename(words[-1].rstrip("/")).removesuffix(".git"))
        if name in ("conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pdm", "pixi", "hatch", "rye"):
            return "run" not in words[1:3]
        if name in ("accelerate", "lightning", "fabric"):
            return not {"launch", "run"} & {*words[1:3]}
        if name in ("source", "."):
            return len(words) < 2 or bool(_ENVIRONMENT_FILE.fullmatch(words[1]))
        if name in ("python", "python3") and words[1:3] in (["-m", "pip"], ["-m", "venv"]):
            return True
        return name in launchers.SETUP_PROGRAMS or name in _SILENT or name in ("eval", "return", "exit", ":")

    def _export(self, words: list[str]) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            if re.fullmatch(r"[A-Za-z_]\w*", name):
                known = self.variables.get(name)
                if equals:
                    self.variables[name] = [value]
                    self.exported[name] = value
                elif known:
                    self.exported[name] = " ".join(known)

    def _change_folder(self, words: list[str]) -> None:
        to = next((word for word in words if not word.startswith("-")), "")
        if to.rstrip("/") in self.cloned:
            to = ""
        self.folder = posixpath.normpath(posixpath.join(self.folder, to)) if to else ""
        if self.folder == ".":
            self.folder = ""

    def _assign(self, name: str, word: Word) -> str | None:
        """Store `NAME=value` and return the value; None where only a shell knows it."""
        if word.values is not None:
            self.variables[name] = [text for value in word.values for text in self._expand(value)]
            return None
        first, *others = word.pieces
        pieces = [first._replace(text=first.text.partition("=")[2]), *others]
        if any(piece.kind == "computed" and not _is_working_folder(piece) for piece in pieces):
            self.variables[name] = None
            return None
        text = "".join(self._expand_joined(piece) for piece in pieces)
        self.variables[name] = [text]
        return text

    def _expand_joined(self, piece: Piece) -> str:
        """Return the text of a piece. Raise ShellTextError where all become too long: each line may double what the one
        before it has stored."""
        text = piece.text if piece.kind == "text" else " ".join(self._list_values(piece))
        self._count_expanded(len(text))
        return text

    def _count_expanded(self, characters: int) -> None:
        self.size += characters
        if self.size > MAX_EXPANDED_CHARACTERS:
            raise ShellTextError("COMMAND_TEXT_TOO_LONG", limit=MAX_EXPANDED_CHARACTERS >> 10)

    def _expand(self, word: Word) -> list[str]:
        """Return the words that one becomes: unquoted values are split at white space, as a shell does. Raise
        ShellTextError where that becomes too long."""
        found: list[str] = []
        open_word: str | None = None
        for piece in word.pieces:
            values = [piece.text] if piece.kind == "text" else self._list_values(piece)
            if piece.kind != "text" and not piece.quoted:
                values = [part for value in values for part in value.split()]
            self._count_expanded(sum(map(len, values)))
            for index, value in enumerate(values):
                if index and open_word is not None:
                    found.append(open_word)
                    open_word = None
                open_word = (open_word or "") + value
        return found if open_word is None else [*found, open_word]

    def _list_values(self, piece: Piece) -> list[str]:
        """Return the values of a variable; what is not known stays as it is written."""
        if _is_working_folder(piece):
            return ["."]
        if piece.kind == "computed":
            self.unexpanded.add(piece.text)
            return [piece.text]
        if piece.text in self.variables:
            known = self.variables[piece.text]
            if known is not None:
                return known
        elif piece.text in PLACEHOLDERS:
            self.filled[f"{{{PLACEHOLDERS[piece.text]}}}"] = piece.source
            return [f"{{{PLACEHOLDERS[piece.text]}}}"]
        elif piece.default is not None:
            return [piece.default] if piece.default else []
        self.unexpanded.add(piece.source)
        return [piece.source]

    def _build(self, reading: _Reading) -> LaunchCommand:
        """Return the result, with notes about all that the kept words have of the shell."""
        nodes, gpus = reading.nodes, reading.gpus
        if reading.total is not None and gpus is None:
            gpus = max(1, reading.total // max(1, nodes or 1))
        env = _choose_variables(reading)
        if devices := next((reading.env[name] for name in _DEVICE_VARIABLES if reading.env.get(name)), ""):
            gpus = gpus or len(devices.split(","))
        words = reading.list_words()
        if reading.unclear:
            made = ProposedEntrypoint(command=tuple(words), processes="node")
        elif reading.command or reading.before or len(reading.python) > 1:
            made = ProposedEntrypoint(command=tuple(words), processes=reading.processes)
        else:
            _read_script_text(reading, self.read_script)
            args = tuple(reading.args)
            made = ProposedEntrypoint(reading.script, reading.module, (), args, reading.processes)
        kept = "\0".join([*made.args, *made.command, made.script, made.module, *env.values()])
        for source in sorted(self.unexpanded):
            if source in kept and made.command[:2] != ("bash", "-c"):
                reading.add_note("COMMAND_VALUE_NOT_EXPANDED", option=source)
        for placeholder, source in sorted(self.filled.items()):
            if placeholder in kept:
                reading.add_note("COMMAND_VALUE_FILLED", found=source, filled=placeholder)
        if re.search(r"(?:^|\0|=)~/", kept):
            reading.add_note("COMMAND_VALUE_NOT_EXPANDED", option="~/")
        as_is = ProposedEntrypoint(command=tuple(reading.original), processes="node")
        return LaunchCommand(
            made, as_is, env, reading.launcher, reading.framework, gpus, nodes, reading.restarts,
            tuple(_join_notes(reading.notes)), tuple(reading.unclear),
        )  # fmt: skip


def _is_working_folder(piece: Piece) -> bool:
    return (piece.kind, piece.text) in (("variable", "PWD"), ("computed", "$(pwd)"), ("computed", "`pwd`"))


def _find_assignment(word: Word) -> str:
    """Return the variable that a word assigns; empty if it is no assignment."""
    first = word.pieces[0] if word.pieces else None
    match = _ASSIGNMENT.match(first.text) if first and first.kind == "text" and not first.quoted else None
    return match[1] if match else ""


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _join_notes(notes: Iterable[Problem]) -> list[Problem]:
    """Return notes with those that differ only in their `option` as one."""
    found: dict[tuple[object, ...], Problem] = {}
    for note in notes:
        rest = tuple((name, value) for name, value in note.params.items() if name != "option")
        before = found.get((note.code, *rest))
        if before is None:
            found[note.code, *rest] = note
        elif (option := note.params.get("option")) and option not in str(before.params["option"]).split(", "):
            joined = _shorten(f"{before.params['option']}, {option}", 400)
            found[note.code, *rest] = Problem(note.field, note.code, {**before.params, "option": joined})
    return [*found.values()][:MAX_NOTES]


def _choose_variables(reading: _Reading) -> dict[str, str]:
    """Return the variables that the task gets."""
    kept: dict[str, str] = {}
    for name, value in reading.env.items():
        if name in _DEVICE_VARIABLES:
            reading.add_note("COMMAND_DEVICES_CHOSEN", option=f"{name}={value}")
        elif variables.is_reserved(name):
            reading.add_note("COMMAND_VARIABLE_RESERVED", option=f"{name}={_shorten(value, 60)}")
        elif name in _SEARCH_PATHS:
            reading.add_note("COMMAND_VARIABLE_LEFT_OUT", option=f"{name}={_shorten(value, 60)}")
        else:
            parts = [
                part for part in value.split(":") if part not in (f"${name}", f"${{{name}:-}}", f"${{{name}}}", "")
            ]
            kept[name] = ":".join(parts) if name.endswith("PATH") and "://" not in value else value
            if _SECRET_NAME.fullmatch(name) and value:
                reading.add_note("COMMAND_VARIABLE_SECRET", name=name)
    return kept


def _parse_count(value: str) -> int | None:
    """Return the number that an option states, the larger one of a range; None where it states none."""
    found = re.fullmatch(r"(?:\d{1,6}[:-])?(\d{1,6})", value)
    return int(found[1]) or None if found else None


def _read(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    """Read a command; a launcher's own command is read in the same way."""
    reading.depth += 1
    if reading.depth > MAX_DEPTH or not words:
        reading.fail("COMMAND_NO_SCRIPT", program=reading.launcher or (words[0] if words else ""))
        return
    name = posixpath.basename(words[0])
    if name == "env":
        _read_env(reading, words, read_script)
    elif name in launchers.WRAPPERS:
        parsed = parse_options(words[1:], launchers.WRAPPERS[name])
        rest = parsed.rest[1:] if name == "sudo" and parsed.unknown else parsed.rest
        if rest:
            reading.add_note("COMMAND_WRAPPER_LEFT_OUT", option=name)
            _read(reading, rest, read_script)
    elif name in launchers.KEPT_WRAPPERS:
        at = next((index for index in range(1, len(words)) if _is_start(words[index])), 0)
        if at:
            reading.before += words[:at]
            _read(reading, words[at:], read_script)
        else:
            reading.fail("COMMAND_PROGRAM_UNKNOWN", program=name)
    elif _INTERPRETER.fullmatch(words[0]):
        _read_python(reading, words, read_script)
    elif name in _RUNNERS:
        _read_runner(reading, name, words, read_script)
    elif name in ("torchrun", "torchpippy"):
        _read_torchrun(reading, "torchrun", words[1:], read_script)
    elif name in ("accelerate", "accelerate-launch"):
        rest = words[1:] if name == "accelerate-launch" else words[2:]
        _read_accelerate(reading, rest, words[: len(words) - len(rest)], read_script)
    elif name in ("deepspeed", "ds"):
        _read_deepspeed(reading, words[1:], read_script)
    elif name in ("fabric", "lightning"):
        _read_fabric(reading, [word for word in words[1:3] if word not in ("run", "model")] + words[3:], read_script)
    elif name == "horovodrun":
        _read_ranks(reading, "horovodrun", launchers.HOROVODRUN, words[1:], read_script)
    elif name in _MPI:
        _read_ranks(reading, name, launchers.MPIRUN, words[1:], read_script)
    elif name == "srun":
        _read_ranks(reading, name, launchers.SRUN, words[1:], read_script)
    elif name in _SHELLS or name in ("source", "."):
        _read_shell(reading, words, read_script)
    elif name.lower().endswith((".py", ".pyc")):
        _set_script(reading, words[0], words[1:])
    elif name.lower().endswith(_SHELL_SCRIPT):
        _set_shell_script(reading, words)
    elif name in _SUBMITTERS:
        reading.fail("COMMAND_SUBMITS_ELSEWHERE", program=name)
    else:
        reading.fail("COMMAND_PROGRAM_UNKNOWN", program=_shorten(words[0]))


def _is_start(word: str) -> bool:
    name = posixpath.basename(word)
    known = ("torchrun", "accelerate", "deepspeed", "fabric", "horovodrun", "srun", *_MPI, *_SHELLS, *_RUNNERS)
    return name in known or bool(_INTERPRETER.fullmatch(word))


def _read_env(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    parsed = parse_options(words[1:], Options(frozenset("i0v"), frozenset("uCS")))
    rest = parsed.rest
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _equals, value = rest.pop(0).partition("=")
        reading.env[name] = value
    if rest:
        _read(reading, rest, read_script)


def _read_python(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    if words[0] not in ("python", "python3", "$PYTHON", "${PYTHON}"):
        reading.add_note("COMMAND_INTERPRETER", found=words[0])
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "-":
        word = words[index]
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            module = words[index + 1 : index + 2] if word == "-m" else [word[2:]]
            rest = words[index + (2 if word == "-m" else 1) :]
            return _read_module(reading, module[0] if module else "", rest, read_script)
        if word == "-c":
            reading.command, reading.processes = [*reading.python, *words[index:]], "gpu"
            return None
        takes = word in ("-W", "-X", "--check-hash-based-pycs")
        if word not in ("-u", "-B", "-q"):
            reading.python += words[index : index + 1 + takes]
        index += 1 + takes
    if index >= len(words) or words[index] == "-":
        return reading.fail("COMMAND_NO_SCRIPT", program=words[0])
    name = posixpath.basename(words[index])
    if name in ("torchrun", "accelerate", "deepspeed", "fabric", "horovodrun"):
        return _read(reading, words[index:], read_script)
    return _set_script(reading, words[index], words[index + 1 :])


def _read_module(reading: _Reading, module: str, args: list[str], read_script: ReadScript | None) -> None:
    known = _LAUNCHER_MODULES.get(module)
    if not module:
        reading.fail("COMMAND_NO_SCRIPT", program="python -m")
    elif known in ("torchrun", "torch.distributed.launch"):
        _read_torchrun(reading, known, args, read_script)
    elif known == "accelerate":
        _read_accelerate(reading, args, ["accelerate", "launch"], read_script)
    elif known:
        _read(reading, ["accelerate" if known == "accelerate_cli" else known, *args], read_script)
    else:
        reading.module, reading.args = module, args
        _note_folder(reading)
        _fill_arguments(reading)


def _set_script(reading: _Reading, script: str, args: list[str]) -> None:
    joins = reading.folder and not script.startswith(("/", "~", "$"))
    reading.script = posixpath.normpath(posixpath.join(reading.folder, script)) if joins else script.removeprefix("./")
    reading.args = args
    _note_folder(reading)
    _fill_arguments(reading)


def _set_shell_script(reading: _Reading, words: list[str]) -> None:
    reading.command, reading.processes = words, "gpu" if reading.ranked else "node"
    reading.add_note(
        "COMMAND_SHELL_SCRIPT", script=next((one for one in words if one.endswith(_SHELL_SCRIPT)), words[-1])
    )
    _note_folder(reading)


def _note_folder(reading: _Reading) -> None:
    if reading.folder:
        reading.add_note("COMMAND_FOLDER", folder=reading.folder)


def _fill_arguments(reading: _Reading) -> None:
    """Replace arguments that state an address or a number of a process by placeholders for each rank's own."""
    names = {_name_argument(word) for word in reading.args if word.startswith("--")}
    filled = dict(_NAMED_ARGUMENTS)
    if _OWN_PROCESSES in names and not reading.launcher:
        reading.processes = "node"
        filled |= {"world-size": "{nnodes}", "rank": "{node_rank}"}
        reading.add_note("COMMAND_OWN_PROCESSES", argument=f"--{_OWN_PROCESSES}")
    elif names & {*_BESIDE_RANK}:
        filled["rank"] = "{rank}"
    kept: list[str] = []
    index = 0
    while index < len(reading.args):
        word, index = reading.args[index], index + 1
        placeholder = filled.get(_name_argument(word), "") if word.startswith("--") else ""
        written, equals, value = word.partition("=")
        if placeholder and not equals:
            value = reading.args[index] if index < len(reading.args) else ""
            index += 1 if value and not value.startswith("--") else 0
        if not placeholder or "env://" in value or value.startswith(("--", "{")) or not value:
            kept.append(word)
            if placeholder and not equals and value and not value.startswith("--"):
                kept.append(value)
            continue
        kept.append(f"{written}={placeholder}")
        reading.add_note("COMMAND_ARGUMENT_FILLED", found=f"{written}={value}", filled=f"{written}={placeholder}")
    reading.args = kept


def _name_argument(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-")


def _read_script_text(reading: _Reading, read_script: ReadScript | None) -> None:
    """Look into the script: whether it starts ranks itself, and which arguments a launcher gives it."""
    text = read_script(reading.script) if read_script and reading.script else b""
    if not text or reading.launcher:
        return
    if reading.processes == "gpu" and (starts := entry.find_rank_start(text)):
        reading.processes = "node"
        reading.add_note("COMMAND_SCRIPT_STARTS_RANKS", script=reading.script, what=starts[0], line=starts[1])


def _note_option(reading: _Reading, option: Option) -> None:
    if option.name in _COUNTS:
        reading.add_note("COMMAND_COUNT_CHOSEN", option=option.source)
    elif option.name in _MEETING:
        reading.add_note("COMMAND_MEETING_CHOSEN", option=option.source)
    elif option.name in _LOGS:
        reading.add_note("COMMAND_OUTPUT_KEPT", option=option.source)
    elif option.name not in ("m", "module", "use-env", "no-local-rank"):
        reading.add_note("COMMAND_OPTION_LEFT_OUT", option=option.source)


def _fail_options(reading: _Reading, program: str, parsed: launchers.ParsedOptions) -> bool:
    """Return whether the options could not be read, or nothing follows them."""
    if parsed.unknown:
        reading.fail("COMMAND_OPTION_UNKNOWN", program=program, option=_shorten(parsed.unknown))
    elif not parsed.rest:
        reading.fail("COMMAND_NO_SCRIPT", program=program)
    return bool(reading.unclear)


def _read_torchrun(reading: _Reading, program: str, words: list[str], read_script: ReadScript | None) -> None:
    parsed = parse_options(words, launchers.TORCHRUN)
    reading.launcher = program
    if _fail_options(reading, program, parsed):
        return
    names = {option.name for option in parsed.options}
    for option in parsed.options:
        if option.name == "nproc-per-node":
            reading.gpus = _parse_count(option.value)
        elif option.name == "nnodes":
            reading.nodes = _parse_count(option.value)
        elif option.name == "max-restarts" and option.value.isdecimal():
            reading.restarts = min(int(option.value), MAX_COUNT)
            reading.add_note("COMMAND_RESTARTS", option=option.source, count=reading.restarts)
            continue
        if option.name not in ("no-python", "run-path"):
            _note_option(reading, option)
    _read_launched(reading, names, parsed.rest, read_script)
    if program == "torch.distributed.launch" and "use-env" not in names and not reading.unclear:
        _add_local_rank(reading, program, _choose_local_rank(reading, read_script))
    if any(_name_argument(word) == "deepspeed" for word in reading.args if word.startswith("--")):
        reading.framework = "deepspeed"


def _read_launched(reading: _Reading, names: Collection[str], words: list[str], read_script: ReadScript | None) -> None:
    """Read what a launcher starts: a script, a module or, with `--no-python`, a program. `names`: its options."""
    if "no-python" in names:
        reading.ranked = True
        _read(reading, words, read_script)
    elif "m" in names or "module" in names:
        _read_module(reading, words[0], words[1:], read_script)
    else:
        _set_script(reading, words[0], words[1:])


def _choose_local_rank(reading: _Reading, read_script: ReadScript | None) -> str:
    """Return how the script spells its argument: as torch's launcher since 2.0, if nothing is known of it."""
    text = read_script(reading.script) if read_script and reading.script else b""
    declared = {one.name: one.option for one in entry.find_rank_arguments(text)}
    return declared.get("local_rank", "--local-rank")


def _add_local_rank(reading: _Reading, program: str, option: str) -> None:
    reading.args = [f"{option}={{local_rank}}", *reading.args]
    reading.add_note("COMMAND_ARGUMENT_ADDED", program=program, argument=f"{option}={{local_rank}}")


_ACCELERATE_VARIABLES = {
    "mixed-precision": "ACCELERATE_MIXED_PRECISION",
    "gradient-accumulation-steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "dynamo-backend": "ACCELERATE_DYNAMO_BACKEND", "dynamo-mode": "ACCELERATE_DYNAMO_MODE",
    "num-cpu-threads-per-process": "OMP_NUM_THREADS", "cpu": "ACCELERATE_USE_CPU", "use-cpu": "ACCELERATE_USE_CPU",
    "debug": "ACCELERATE_DEBUG_MODE", "fp16": "ACCELERATE_MIXED_PRECISION",
    "dynamo-use-fullgraph": "ACCELERATE_DYNAMO_USE_FULLGRAPH", "dynamo-use-dynamic": "ACCELERATE_DYNAMO_USE_DYNAMIC",
    "enable-cpu-affinity": "ACCELERATE_CPU_AFFINITY",
}  # fmt: skip
"""How `accelerate launch` passes options to ranks (`prepare_multi_gpu_env` of accelerate 1.15 `utils/launch.py`)."""
_ACCELERATE_FLAGS = {"cpu": "True", "use-cpu": "True", "debug": "true", "fp16": "fp16", "enable-cpu-affinity": "1"}
_ACCELERATE_COUNTS = (
    ("num-processes", "{world_size}"),
    ("num-machines", "{nnodes}"),
    ("machine-rank", "{node_rank}"),
    ("main-process-ip", "{master}"),
    ("main-process-port", "{port}"),
)
_ACCELERATE_LAUNCH = ("python", "-m", "accelerate.commands.launch")
"""What the program `accelerate launch` is, with the interpreter of the task."""
_ACCELERATE_PLAIN = launchers.list_names(
    "m module no-python quiet q role monitor-interval main-training-function same-network multi-gpu use-xpu"
)


def _read_accelerate(reading: _Reading, words: list[str], program: list[str], read_script: ReadScript | None) -> None:
    """Read `accelerate launch`. What ranks get as variables becomes variables; with options that take effect only in
    the launcher (a configuration file, DeepSpeed, FSDP, Megatron), it is kept and started once on each node."""
    parsed = parse_options(words, launchers.ACCELERATE)
    reading.launcher = "accelerate launch"
    if _fail_options(reading, "accelerate launch", parsed):
        return
    kept: list[Option] = []
    for option in parsed.options:
        if option.name == "num-processes":
            reading.total = _parse_count(option.value)
        elif option.name == "num-machines":
            reading.nodes = _parse_count(option.value)
        elif option.name == "gpu-ids" and option.value != "all":
            reading.total = reading.total or len(option.value.split(","))
        elif option.name == "max-restarts" and option.value.isdecimal():
            reading.restarts = min(int(option.value), MAX_COUNT)
        if option.name in ("use-deepspeed", "deepspeed-config-file", "zero-stage"):
            reading.framework = "deepspeed"
        elif option.name == "use-fsdp":
            reading.framework = "pytorch-fsdp"
        known = (*_COUNTS, *_MEETING, *_LOGS, *_ACCELERATE_VARIABLES, *_ACCELERATE_PLAIN, "max-restarts")
        if option.name not in known:
            kept.append(option)
    names = {option.name for option in parsed.options}
    if kept:
        _keep_accelerate(reading, program, parsed, kept)
        return
    for option in parsed.options:
        if variable := _ACCELERATE_VARIABLES.get(option.name):
            value = (
                option.value
                if option.name in launchers.ACCELERATE.values
                else _ACCELERATE_FLAGS.get(option.name, "True")
            )
            value = value.upper() if option.name == "dynamo-backend" else value
            reading.env.setdefault(variable, value)
            reading.add_note("COMMAND_OPTION_VARIABLE", option=option.source, variable=f"{variable}={value}")
        elif option.name == "max-restarts" and reading.restarts is not None:
            reading.add_note("COMMAND_RESTARTS", option=option.source, count=reading.restarts)
        elif option.name != "no-python":
            _note_option(reading, option)
    _read_launched(reading, names, parsed.rest, read_script)


def _keep_accelerate(
    reading: _Reading, program: list[str], parsed: launchers.ParsedOptions, kept: Sequence[Option]
) -> None:
    words: list[str] = [*_ACCELERATE_LAUNCH] if program[0].startswith("accelerate") else [*program]
    replaced = {name for name, _placeholder in _ACCELERATE_COUNTS}
    for option in parsed.options:
        if option.name in replaced or option.name in _MEETING or option.name == "gpu-ids":
            _note_option(reading, option)
            continue
        takes = option.name in launchers.ACCELERATE.values and "=" not in option.source.split(" ")[0]
        written = option.source.partition(" ")[0] if takes else option.source
        words += [written, option.value] if takes else [written]
    words += [f"--{name.replace('-', '_')}={placeholder}" for name, placeholder in _ACCELERATE_COUNTS]
    reading.command, reading.processes = [*words, *parsed.rest], "node"
    reading.add_note(
        "COMMAND_LAUNCHER_KEPT",
        program="accelerate launch",
        option=", ".join(_shorten(one.source, 80) for one in kept[:6]),
    )
    _note_folder(reading)


def _read_deepspeed(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    parsed = parse_options(words, launchers.DEEPSPEED)
    reading.launcher = reading.framework = "deepspeed"
    if _fail_options(reading, "deepspeed", parsed):
        return
    names = {option.name for option in parsed.options}
    for option in parsed.options:
        if option.name in ("num-gpus", "num-accelerators"):
            reading.gpus = _parse_count(option.value)
        elif option.name == "num-nodes":
            reading.nodes = _parse_count(option.value)
        elif option.name in ("i", "include"):
            hosts = [host for host in option.value.split("@") if host]
            reading.nodes = reading.nodes or len(hosts)
            if hosts and ":" in hosts[0]:
                reading.gpus = reading.gpus or len(hosts[0].split(":")[1].split(","))
        if option.name != "no-python":
            _note_option(reading, option)
    if "no-python" in names:
        reading.ranked = True
        _read(reading, parsed.rest, read_script)
        return
    if "module" in names:
        _read_module(reading, parsed.rest[0], parsed.rest[1:], read_script)
    else:
        _set_script(reading, parsed.rest[0], parsed.rest[1:])
    if "no-local-rank" not in names:
        _add_local_rank(reading, "deepspeed", "--local_rank")


def _read_fabric(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    """Read `fabric run`, which passes its options to the script as variables (lightning-fabric 2.6 `cli.py`)."""
    parsed = parse_options(words, launchers.FABRIC)
    reading.launcher = "fabric run"
    if _fail_options(reading, "fabric run", parsed):
        return
    reading.env |= {"LT_CLI_USED": "1", "LT_DEVICES": "{nproc_per_node}", "LT_NUM_NODES": "{nnodes}"}
    for option in parsed.options:
        if option.name in ("accelerator", "strategy", "precision"):
            variable = f"LT_{option.name.upper()}"
            reading.env[variable] = option.value
            reading.add_note("COMMAND_OPTION_VARIABLE", option=option.source, variable=f"{variable}={option.value}")
            continue
        if option.name == "devices":
            reading.gpus = _parse_count(option.value)
        elif option.name == "num-nodes":
            reading.nodes = _parse_count(option.value)
        _note_option(reading, option)
    _set_script(reading, parsed.rest[0], parsed.rest[1:])


def _read_ranks(
    reading: _Reading, program: str, table: Options, words: list[str], read_script: ReadScript | None
) -> None:
    """Read a launcher that starts any command once for each rank: `horovodrun`, `mpirun`, `srun`."""
    parsed = parse_options(words, table)
    reading.launcher = program
    if program == "horovodrun":
        reading.framework = "horovod"
    if _fail_options(reading, program, parsed):
        return
    tasks_per_node = None
    for option in parsed.options:
        name, value = option.name, option.value
        if name in ("np", "num-proc", "n", "ntasks") or (name == "c" and program != "srun"):
            reading.total = _parse_count(value)
        elif name in ("nodes", "nnodes") or (name == "N" and program == "srun"):
            reading.nodes = _parse_count(value)
        elif name in ("npernode", "N", "ppn", "perhost"):
            reading.gpus = _parse_count(value)
        elif name in ("H", "host", "hosts"):
            reading.nodes = reading.nodes or len(value.split(",")) or None
        elif name == "ntasks-per-node":
            tasks_per_node = _parse_count(value)
        elif name in ("gpus-per-node", "gres") and (found := re.search(r"(\d{1,4})$", value)):
            reading.gpus = int(found[1]) or None
        elif name == "x" and program != "srun":
            _add_variables(reading, [value])
            continue
        elif name == "export":
            _add_variables(reading, value.split(","))
            continue
        elif name in ("genv", "env"):
            _add_variables(reading, [value.replace(" ", "=", 1)])
            continue
        _note_option(reading, option)
    per_node = tasks_per_node == 1 or (reading.total is not None and reading.total == reading.nodes)
    if tasks_per_node and tasks_per_node > 1:
        reading.gpus = reading.gpus or tasks_per_node
    if program == "srun" and per_node:
        reading.total = None  # one task on each node: what it starts says how many ranks there are
    reading.ranked = not (program == "srun" and per_node)
    _read(reading, parsed.rest, read_script)


def _add_variables(reading: _Reading, pairs: Iterable[str]) -> None:
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            reading.env.setdefault(name, value)


def _read_runner(reading: _Reading, name: str, words: list[str], read_script: ReadScript | None) -> None:
    """Read a program that runs another one in an environment of packages: it stays before that."""
    if "run" not in words[1:3]:
        return reading.fail("COMMAND_PROGRAM_UNKNOWN", program=name)
    at = words.index("run") + 1
    table = {"uv": launchers.UV_RUN, "conda": launchers.CONDA_RUN, "mamba": launchers.CONDA_RUN}.get(
        name, launchers.CONDA_RUN if name == "micromamba" else Options(frozenset("vq"), frozenset("Cpe"))
    )
    parsed = parse_options(words[at:], table)
    if _fail_options(reading, f"{name} run", parsed):
        return None
    names = {option.name for option in parsed.options}
    options = words[at : len(words) - len(parsed.rest)]
    if name == "uv":
        options = [word for word in options if word not in ("-m", "--module", "-s", "--script")]
    reading.before += [*words[:at], *options]
    reading.add_note("COMMAND_RUNNER_KEPT", program=f"{name} run")
    if name == "uv" and names & {"m", "module"}:
        return _read_module(reading, parsed.rest[0], parsed.rest[1:], read_script)
    return _read(reading, parsed.rest, read_script)


def _read_shell(reading: _Reading, words: list[str], read_script: ReadScript | None) -> None:
    """Read `bash run.sh`, and the text of `bash -c`."""
    index = 1
    while index < len(words) and re.fullmatch(r"[-+][a-zA-Z]+|--\w[\w-]*", words[index]):
        if words[index].startswith("-") and words[index].endswith("c"):
            text = words[index + 1] if index + 1 < len(words) else ""
            return _read_shell_text(reading, words, text, read_script)
        index += 2 if words[index] in ("-o", "+o", "-O", "+O") else 1
    if index >= len(words):
        return reading.fail("COMMAND_NO_SCRIPT", program=words[0])
    if words[0] in ("source", "."):
        words, index = ["bash", *words[index:]], 1
    if words[index].endswith(".py"):
        return _set_script(reading, words[index], words[index + 1 :])
    return _set_shell_script(reading, words)


def _read_shell_text(reading: _Reading, words: list[str], text: str, read_script: ReadScript | None) -> None:
    inner = _Shell(read_script, reading.depth)
    inner.folder = reading.folder
    for command in parse_commands(text) if reading.depth < MAX_DEPTH else []:
        inner.run(command)
    found = inner.choose()
    if found is None or inner.strange or found.unclear or (inner.unexpanded - inner.filled.keys()):
        reading.command, reading.processes = words, "gpu" if reading.ranked else "node"
        return
    if reading.ranked and not found.launcher and found.command:
        found.processes = "gpu"
    for name in ("before", "python", "script", "module", "command", "args", "processes"):
        setattr(reading, name, getattr(found, name))
    reading.launcher = found.launcher or reading.launcher
    reading.framework = found.framework or reading.framework
    reading.gpus, reading.nodes = found.gpus or reading.gpus, found.nodes or reading.nodes
    reading.total = found.total if found.launcher else reading.total
    reading.restarts = found.restarts
    reading.env |= found.env
    reading.notes += [*inner.notes, *found.notes]
