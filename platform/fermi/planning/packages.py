"""Compares what the interpreters of several environments have installed. Pure.

What an environment reports is its user's: its shape is checked and its size bounded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fermi.inside.installation import MAX_PACKAGES, REQUIREMENT_PATTERN  # noqa: F401 (for others)
from fermi.planning.imports import NO_IMPORTS, Imports  # noqa: F401 (for others)

MAX_DISTRIBUTIONS = 2000
MAX_IMPORTS = 500
PYTHON, TORCH, NCCL, CUDA, HIP, PACKAGE = KINDS = ("python", "torch", "nccl", "cuda", "hip", "package")
_WORD = re.compile(r"[\w.!+*~()\[\] -]{1,200}")
_NOT_INSTALLABLE = re.compile(
    r"pip|setuptools|wheel|uv|conda.*|torch|torch-?(vision|audio|data|text|ao)|triton.*|pytorch-.*|nvidia-.*|cuda-.*"
    r"|jax|jaxlib|jax-cuda.*|tensorflow.*|cupy.*|deepspeed|horovod|flash-attn|apex|transformer-engine.*|xformers"
)
"""Packages of an environment's driver, compiler or interpreter: another version is not installed by one command, and
may break the environment."""
KNOWN_DISTRIBUTIONS = {
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
listed here is not guessed: a name on the index may belong to anybody."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution. `origin`: `editable`, `vcs` or `file`; empty: it came from an index."""

    name: str
    version: str
    origin: str = ""

    @property
    def requirement(self) -> str:
        """The requirement that installs the same elsewhere; empty where no index has it: a local version
        (`2.5.1+cu124`) is only on its publisher's."""
        text = f"{self.name}=={self.version}"
        return text if not self.origin and "+" not in self.version and REQUIREMENT_PATTERN.fullmatch(text) else ""


@dataclass(frozen=True, slots=True)
class ModuleStatus:
    """A top-level module that was looked for. `distribution`: the normalized name of the one that has it."""

    found: bool
    distribution: str = ""


@dataclass(frozen=True, slots=True)
class InstalledPackages:
    """What one interpreter of an environment has. `distributions`: by their normalized names."""

    python: str
    version: str
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    torch: Mapping[str, str] = field(default_factory=dict)
    imports: Mapping[str, ModuleStatus] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as the environment reported it."""
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
        """Return its version of Python, torch, NCCL, CUDA or HIP; empty where it has none, or none is known."""
        return self.version if kind == PYTHON else self.torch.get("version" if kind == TORCH else kind, "")


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """`values`: the version by environment; empty where it is missing. `fatal`: training together is known to fail by
    it."""

    kind: str
    name: str
    values: Mapping[str, str]
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class MissingModule:
    """A module that the task's code imports at `place`, and which environments lack it. `requirement`: what installs
    it; empty: unknown. `anywhere`: one of the environments has it."""

    module: str
    place: str
    environments: Sequence[str]
    requirement: str = ""
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class MissingDistribution:
    """A distribution that only some of the environments have. `requirement`: empty where it is not installed by one
    command (see _NOT_INSTALLABLE), or from no index."""

    name: str
    version: str
    environments: Sequence[str]
    requirement: str = ""


def normalize_name(name: str) -> str:
    """Return a distribution's name as PEP 503 normalizes names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_packages(data: Any) -> InstalledPackages:
    """Return what `fermi.inside.packages` reported. Raises ValueError for anything else; excess items are left out."""
    if not isinstance(data, Mapping) or not _is_word(data.get("version")):
        raise ValueError("no interpreter's packages")
    python = data.get("python")
    found = dict[str, Distribution]()
    for name, one in _take_items(data.get("distributions"), MAX_DISTRIBUTIONS):
        if _is_word(name) and isinstance(one, Mapping) and _is_word(one.get("version")):
            origin = one.get("origin") if one.get("origin") in ("editable", "vcs", "file") else ""
            found.setdefault(normalize_name(name), Distribution(name, str(one["version"]), str(origin)))
    modules = {
        name: ModuleStatus(one["found"] is True, normalize_name(one.get("distribution") or ""))
        for name, one in _take_items(data.get("imports"), MAX_IMPORTS)
        if _is_word(name) and isinstance(one, Mapping) and isinstance(one.get("found"), bool)
        and (not one.get("distribution") or _is_word(one["distribution"]))
    }  # fmt: skip
    torch = {
        name: str(value) for name, value in _take_items(data.get("torch"), 10) if _is_word(name) and _is_word(value)
    }
    path = python if isinstance(python, str) and len(python) <= 1000 else ""
    return InstalledPackages(path, str(data["version"]), found, torch, modules)


def _take_items(data: Any, max_items: int) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, Mapping):
        for _, both in zip(range(max_items), data.items(), strict=False):
            yield both


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


def find_differences(installed: Mapping[str, InstalledPackages]) -> list[VersionDifference]:
    """Return the differences: fatal ones first, then the rest of Python, torch and CUDA, then packages by their
    names."""
    if len(installed) < 2:
        return []
    found = [one for kind in (TORCH, NCCL, PYTHON, CUDA, HIP) if (one := _compare_kind(kind, installed))]
    found.sort(key=lambda one: not one.fatal)
    names = sorted({key for look in installed.values() for key in look.distributions} - {"torch"})
    for key in names:
        values = {where: _get_version(look, key) for where, look in installed.items()}
        if len(set(values.values())) > 1:
            name = next(look.distributions[key].name for look in installed.values() if key in look.distributions)
            found.append(VersionDifference(PACKAGE, name, values))
    return found


def _compare_kind(kind: str, installed: Mapping[str, InstalledPackages]) -> VersionDifference | None:
    """Return the difference in one kind of version, or None. NCCL refuses any other version of itself (NCCL's
    src/init.cc, `initTransportsRank`: "Mismatched NCCL version detected"). Other minor versions of torch use other
    protocols, and those of Python cannot read each other's pickled functions."""
    values = {where: look.of_kind(kind) for where, look in installed.items()}
    if len(set(values.values())) < 2:
        return None
    stated = {value for value in values.values() if value}
    if kind != TORCH and len(stated) < 2:
        return None  # NCCL or CUDA of a torch without GPUs, or that does not say
    fatal = kind == NCCL or (kind in (PYTHON, TORCH) and len({_get_minor(value) for value in values.values()}) > 1)
    return VersionDifference(kind, {PYTHON: "Python", TORCH: "torch", NCCL: "NCCL", CUDA: "CUDA", HIP: "HIP"}[kind],
                      values, fatal)  # fmt: skip


def _get_minor(version: str) -> tuple[str, ...]:
    return tuple(re.split(r"[.+]", version)[:2])


def _get_version(installed: InstalledPackages, key: str) -> str:
    one = installed.distributions.get(key)
    return one.version if one else ""


def find_missing_modules(installed: Mapping[str, InstalledPackages], imports: Imports) -> list[MissingModule]:
    """Return the modules that an environment certainly lacks. A module that none has may be a file of the task's own,
    where the code has one of that name, or where its files are unknown."""
    found = []
    for name, place in imports.needed.items():
        states = {where: look.imports.get(name) for where, look in installed.items()}
        absent = [where for where, one in states.items() if one and not one.found]
        has = next((where for where, one in states.items() if one and one.found), None)
        if not absent or (has is None and name in imports.local):
            continue
        found.append(MissingModule(name, place, absent, _find_requirement(name, has, installed), has is not None))
    return found


def _find_requirement(module: str, has: str | None, looks: Mapping[str, InstalledPackages]) -> str:
    if has is None:
        return KNOWN_DISTRIBUTIONS.get(module, "")
    look = looks[has]
    one = look.distributions.get(look.imports[module].distribution)
    return one.requirement if one and not _NOT_INSTALLABLE.fullmatch(normalize_name(one.name)) else ""


def find_missing_distributions(installed: Mapping[str, InstalledPackages]) -> list[MissingDistribution]:
    """Return what some have and others lack, by name, in the version of the first environment that has it."""
    found = []
    for key in sorted({key for look in installed.values() for key in look.distributions}):
        absent = [where for where, look in installed.items() if key not in look.distributions]
        if absent:
            one = next(look.distributions[key] for look in installed.values() if key in look.distributions)
            requirement = "" if _NOT_INSTALLABLE.fullmatch(key) else one.requirement
            found.append(MissingDistribution(one.name, one.version, absent, requirement))
    return found


def filter_relevant(
    differences: Iterable[VersionDifference], installed: Mapping[str, InstalledPackages], imports: Imports
) -> list[VersionDifference]:
    """Return the differences that a task with these imports may notice: of torch and CUDA, of Python's minor versions,
    and between versions of the packages that have one of its modules. What an environment lacks is reported by
    `find_missing_modules`."""
    keys = {
        look.imports[name].distribution
        for look in installed.values()
        for name in imports.needed
        if name in look.imports
    }

    def is_noticed(one: VersionDifference) -> bool:
        if one.kind == PACKAGE:
            return normalize_name(one.name) in keys - {""} and len(set(one.values.values()) - {""}) > 1
        return one.kind != PYTHON or one.fatal

    return [one for one in differences if is_noticed(one)]


def find_invalid_requirement(packages: Sequence[str]) -> str:
    """Return the first one that is not a package's name and version; "" where all are."""
    return next((one for one in packages if not REQUIREMENT_PATTERN.fullmatch(one)), "")
