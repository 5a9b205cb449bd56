"""The rules for names (docs/naming.md) hold in `platform` and `apps`."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORMER = (
    "platform/fermi/keeper/", "platform/fermi/launch/", "platform/fermi/runner/template.py",
    "platform/fermi/runner/confined.py", "platform/fermi/runner/confine.py", "platform/fermi/runner/gathering.py",
    "platform/fermi/runner/bringing.py", "platform/fermi/runner/prepared.py", "platform/fermi/telemetry/folded.py",
)  # fmt: skip
"""Names of the release before: processes that run now were started by them."""
GENERATED = ("platform/fermi/client/types.py",)
NOUNS = {
    "deepspeed", "distributed", "downsampling", "encoding", "installed", "packing", "planning", "polling",
    "pricing", "pruning",
    "ranking", "scaling", "scheduling", "sharding", "tracing", "training", "untrusted",
}  # fmt: skip
"""Words in -ing and -ed that are nouns of the field, and names of frameworks and of documented modules."""
BANNED = {
    "look", "of", "shown", "told", "said", "asked", "ask", "take", "tell", "let_go", "give_back", "hold", "held",
    "poke", "begin", "end", "go_on", "steer", "settle", "keep", "listed", "entries", "lines", "rows", "note", "mark",
    "over", "remember", "there", "here", "away", "whence", "beside", "behind", "within", "dear", "odd", "plain",
    "quiet", "worth", "whole", "forget", "known", "wanted", "made", "found", "seen", "heard", "come", "among", "due",
    "say", "ways", "lacks",
}  # fmt: skip
USERS_METHODS = {
    "platform/fermi/client/environments.py: Environments.keep": "called as `fermi environments keep` and `POST …/keep`",
    "platform/fermi/client/pagination.py: Listing.behind": "in scripts of users (docs/python-client.md)",
}
"""Public methods of the Python client, with the reason why they keep their names."""
MAX_SAME_CLASS_NAME = 2
DJANGO = {"Config", "Command", "Meta", "Migration"}


def list_modules() -> Iterator[Path]:
    for folder in ("platform", "apps"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith((*FORMER, *GENERATED)) and "/migrations/" not in name:
                yield path


MODULES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in list_modules()}


def list_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield name, node


def is_participle(word: str) -> bool:
    return word.endswith(("ing", "ed")) and len(word) > 4 and word not in NOUNS


def test_no_module_is_named_by_a_participle() -> None:
    stems = {name: (Path(name).parent if name.endswith("__init__.py") else Path(name)).stem for name in MODULES}
    assert not {name: stem for name, stem in stems.items() if is_participle(stem.strip("_").split("_")[-1])}


def test_no_public_function_has_a_banned_name() -> None:
    found = {
        f"{name}: {node.name}"
        for name, tree in MODULES.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.lower() in BANNED
        and not name.endswith("/models.py")  # stored
    }
    assert not found


def test_no_public_method_has_a_name_that_means_anything() -> None:
    found = {
        f"{name}: {cls.name}.{node.name}"
        for name, cls in list_classes()
        for node in cls.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in BANNED
        and not name.endswith("/models.py")  # stored
    }
    assert found == set(USERS_METHODS)


def test_every_exception_ends_in_error() -> None:
    classes = list(list_classes())
    exceptions = {"Exception", "BaseException"}
    while True:
        more = {
            node.name
            for _, node in classes
            for base in node.bases
            if getattr(base, "id", getattr(base, "attr", "")) in exceptions
            or getattr(base, "id", getattr(base, "attr", "")).endswith("Error")
        }
        if more <= exceptions:
            break
        exceptions |= more
    assert not {
        f"{name}: {node.name}" for name, node in classes if node.name in exceptions and not node.name.endswith("Error")
    }


def test_no_class_name_is_used_three_times() -> None:
    tables = {node.name for name, node in list_classes() if name.endswith("/models.py")}
    count = Counter(node.name for _, node in list_classes() if node.name not in DJANGO | tables)
    assert not {name: number for name, number in count.items() if number > MAX_SAME_CLASS_NAME}


@pytest.mark.parametrize("package", ["platform/fermi", "apps"])
def test_every_package_has_a_docstring(package: str) -> None:
    """`ls` and the first sentence of a package are how a newcomer finds a module."""
    silent = [
        name
        for name, tree in MODULES.items()
        if name.startswith(package) and not name.endswith("__main__.py") and tree.body and not ast.get_docstring(tree)
        and not name.endswith(("/urls.py", "/apps.py"))
    ]  # fmt: skip
    assert not silent
