"""What the interpreters of several environments have installed, and where they differ. Pure.

What an environment says is its user's: nothing of it is believed but in its shape, and none of it may be large."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fermi.inside.installation import MAX_PACKAGES, REQUIREMENT  # noqa: F401 (for others)
from fermi.planning.imports import NOTHING, Imports  # noqa: F401 (for others)

MAX_DISTRIBUTIONS = 2000
MAX_IMPORTS = 500
MAX_WORD = 200
PYTHON, TORCH, NCCL, CUDA, HIP, PACKAGE = KINDS = ("python", "torch", "nccl", "cuda", "hip", "package")
_WORD = re.compile(r"[\w.!+*~()\[\] -]{1,200}")
_KEPT = re.compile(
    r"pip|setuptools|wheel|uv|conda.*|torch|torch-?(vision|audio|data|text|ao)|triton.*|pytorch-.*|nvidia-.*|cuda-.*"
    r"|jax|jaxlib|jax-cuda.*|tensorflow.*|cupy.*|deepspeed|horovod|flash-attn|apex|transformer-engine.*|xformers"
)
"""What belongs to the driver, the compiler or the interpreter of an environment: another version of it is no matter of
one command, and may break what is there."""
WELL_KNOWN = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "einops": "einops",
    "git": "GitPython",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "omegaconf": "omegaconf",
    "pandas": "pandas",
    "scipy": "scipy",
    "sentencepiece": "sentencepiece",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorboard": "tensorboard",
    "tokenizers": "tokenizers",
    "tqdm": "tqdm",
    "transformers": "transformers",
    "wandb": "wandb",
    "yaml": "PyYAML",
}
"""Modules and the distributions on the public index that have them. A module that is missing everywhere and is not
named here is not guessed: a name on the index may be anybody's."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """`origin`: `editable`, `vcs` or `file`; empty: it came from an index."""

    name: str
    version: str
    origin: str = ""

    @property
    def requirement(self) -> str:
        """By which the same can be had elsewhere; empty where no index has it: of a local version (`2.5.1+cu124`) only
        its publisher's has."""
        text = f"{self.name}=={self.version}"
        return text if not self.origin and "+" not in self.version and REQUIREMENT.fullmatch(text) else ""


@dataclass(frozen=True, slots=True)
class Module:
    """A top-level module that was looked for. `distribution`: what has it, by its key."""

    found: bool
    distribution: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What one interpreter of an environment has. `distributions`: by `key_of` their names."""

    python: str
    version: str
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    torch: Mapping[str, str] = field(default_factory=dict)
    imports: Mapping[str, Module] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the environment said it."""
        return {
            "python": self.python, "version": self.version, "torch": dict(self.torch),
            "distributions": {
                one.name: {"version": one.version, **({"origin": one.origin} if one.origin else {})}
                for one in self.distributions.values()
            },
            "imports": {
                name: {"found": one.found, "distribution": one.distribution} for name, one in self.imports.items()
            },
        }  # fmt: skip

    def of_kind(self, kind: str) -> str:
        """Its version of Python, torch, NCCL, CUDA or HIP; empty where it has none, or none is known."""
        return self.version if kind == PYTHON else self.torch.get("version" if kind == TORCH else kind, "")


@dataclass(frozen=True, slots=True)
class Difference:
    """`values`: by environment, the version; empty where it is missing. `fatal`: training together fails by it, or is
    known to."""

    kind: str
    name: str
    values: Mapping[str, str]
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A module that the task's code imports at `place`, and which of the environments have not got. `requirement`: what
    installs it; empty: nobody knows. `anywhere`: one of the environments has it."""

    module: str
    place: str
    environments: Sequence[str]
    requirement: str = ""
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Lacking:
    """A distribution that some of the environments have. `requirement`: empty where it is not installed by one command
    (see _KEPT), or from no index."""

    name: str
    version: str
    environments: Sequence[str]
    requirement: str = ""


def key_of(name: str) -> str:
    """Returns a distribution's name as PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(said: Any) -> Look:
    """Returns what `fermi.inside.packages` told. Raises ValueError for anything else; what is too much is left out."""
    if not isinstance(said, Mapping) or not _is_word(said.get("version")):
        raise ValueError("no interpreter's packages")
    python = said.get("python")
    found = dict[str, Distribution]()
    for name, one in _first(said.get("distributions"), MAX_DISTRIBUTIONS):
        if _is_word(name) and isinstance(one, Mapping) and _is_word(one.get("version")):
            origin = one.get("origin") if one.get("origin") in ("editable", "vcs", "file") else ""
            found.setdefault(key_of(name), Distribution(name, str(one["version"]), str(origin)))
    modules = {
        name: Module(one["found"] is True, key_of(one.get("distribution") or ""))
        for name, one in _first(said.get("imports"), MAX_IMPORTS)
        if _is_word(name) and isinstance(one, Mapping) and isinstance(one.get("found"), bool)
        and (not one.get("distribution") or _is_word(one["distribution"]))
    }  # fmt: skip
    torch = {name: str(value) for name, value in _first(said.get("torch"), 10) if _is_word(name) and _is_word(value)}
    path = python if isinstance(python, str) and len(python) <= 1000 else ""
    return Look(path, str(said["version"]), found, torch, modules)


def _first(said: Any, most: int) -> Iterator[tuple[Any, Any]]:
    if isinstance(said, Mapping):
        for _, both in zip(range(most), said.items(), strict=False):
            yield both


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


def differences(looks: Mapping[str, Look]) -> list[Difference]:
    """Returns where they differ: what training fails by first, then the rest of Python, torch and CUDA, then packages
    by their names."""
    if len(looks) < 2:
        return []
    found = [one for kind in (TORCH, NCCL, PYTHON, CUDA, HIP) if (one := _of_kind(kind, looks))]
    found.sort(key=lambda one: not one.fatal)
    names = sorted({key for look in looks.values() for key in look.distributions} - {"torch"})
    for key in names:
        values = {where: _version(look, key) for where, look in looks.items()}
        if len(set(values.values())) > 1:
            name = next(look.distributions[key].name for look in looks.values() if key in look.distributions)
            found.append(Difference(PACKAGE, name, values))
    return found


def _of_kind(kind: str, looks: Mapping[str, Look]) -> Difference | None:
    """NCCL refuses another version of itself, whichever (NCCL's src/init.cc, `initTransportsRank`: "Mismatched NCCL
    version detected"). Other minor versions of torch speak differently with each other, and those of Python read each
    other's pickled functions not."""
    values = {where: look.of_kind(kind) for where, look in looks.items()}
    if len(set(values.values())) < 2:
        return None
    stated = {value for value in values.values() if value}
    if kind != TORCH and len(stated) < 2:
        return None  # NCCL or CUDA of a torch without GPUs, or that does not say
    fatal = kind == NCCL or (kind in (PYTHON, TORCH) and len({_minor(value) for value in values.values()}) > 1)
    return Difference(kind, {PYTHON: "Python", TORCH: "torch", NCCL: "NCCL", CUDA: "CUDA", HIP: "HIP"}[kind],
                      values, fatal)  # fmt: skip


def _minor(version: str) -> tuple[str, ...]:
    return tuple(re.split(r"[.+]", version)[:2])


def _version(look: Look, key: str) -> str:
    one = look.distributions.get(key)
    return one.version if one else ""


def missing(looks: Mapping[str, Look], imports: Imports) -> list[Missing]:
    """Returns the modules that an environment surely has not got. What none has may be a file of the task's own, where
    the code has one that is called so, or where its files are not known."""
    found = []
    for name, place in imports.needed.items():
        states = {where: look.imports.get(name) for where, look in looks.items()}
        absent = [where for where, one in states.items() if one and not one.found]
        has = next((where for where, one in states.items() if one and one.found), None)
        if not absent or (has is None and name in imports.local):
            continue
        found.append(Missing(name, place, absent, _requirement(name, has, looks), has is not None))
    return found


def _requirement(module: str, has: str | None, looks: Mapping[str, Look]) -> str:
    if has is None:
        return WELL_KNOWN.get(module, "")
    look = looks[has]
    one = look.distributions.get(look.imports[module].distribution)
    return one.requirement if one and not _KEPT.fullmatch(key_of(one.name)) else ""


def lacking(looks: Mapping[str, Look]) -> list[Lacking]:
    """Returns what some have and others lack, by name, in the version of the first environment that has it."""
    found = []
    for key in sorted({key for look in looks.values() for key in look.distributions}):
        absent = [where for where, look in looks.items() if key not in look.distributions]
        if absent:
            one = next(look.distributions[key] for look in looks.values() if key in look.distributions)
            requirement = "" if _KEPT.fullmatch(key) else one.requirement
            found.append(Lacking(one.name, one.version, absent, requirement))
    return found


def relevant(found: Iterable[Difference], looks: Mapping[str, Look], imports: Imports) -> list[Difference]:
    """Returns those that a task with these imports may notice: of torch and CUDA, of Python's minor versions, and
    between versions of the packages that have one of its modules. What an environment lacks is told by `missing`."""
    keys = {
        look.imports[name].distribution for look in looks.values() for name in imports.needed if name in look.imports
    }

    def is_noticed(one: Difference) -> bool:
        if one.kind == PACKAGE:
            return key_of(one.name) in keys - {""} and len(set(one.values.values()) - {""}) > 1
        return one.kind != PYTHON or one.fatal

    return [one for one in found if is_noticed(one)]


def check_requirements(packages: Sequence[str]) -> str:
    """Returns the first that is no package's name and version; "" where all are."""
    return next((one for one in packages if not REQUIREMENT.fullmatch(one)), "")
