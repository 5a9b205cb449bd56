"""Every page can be found, and every link leads somewhere."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement, Requirement

from server import client_wheel

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    """The Markdown of the project: what is tracked, and what soon will be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository")
    return [root / name for name in names if (root / name).is_file()]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """(file, anchor) of every link that stays within the project."""
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield Path(os.path.normpath(page.parent / name)) if name else page, anchor


def anchors(page: Path) -> set[str]:
    """As hosts of repositories make them of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    }


def test_every_page_is_in_the_index(root: Path) -> None:
    index = root / "docs" / "README.md"
    listed = {target for target, _ in links(index)}
    wanted = {page for page in pages(root) if page.is_relative_to(root / "docs") and page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(root)) for page in wanted - listed - {index}) == []


def test_every_link_leads_to_an_existing_page_and_heading(root: Path) -> None:
    broken = [
        f"{page.relative_to(root)}: {target.name}{anchor and f'#{anchor}'}"
        for page in pages(root)
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []


PATH = re.compile(r"`((?:platform|apps|tests|frontend|bench)/[\w/.-]+)`")


def test_every_path_named_by_a_guide_exists(root: Path) -> None:
    guides = sorted((root / "docs" / "guides").glob("*.md"))
    named = {(guide.name, path) for guide in guides for path in PATH.findall(guide.read_text("utf-8"))}
    assert len(named) > 50
    assert [(guide, path) for guide, path in sorted(named) if not (root / path).exists()] == []


def test_decision_numbers_are_unique(root: Path) -> None:
    numbers = sorted(path.name[:4] for path in (root / "docs" / "decisions").glob("*.md"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


INSTALL = re.compile(r"\bpip3? install(?= )")
WORD = re.compile(r""" +(?:'([^']+)'|"([^"]+)"|([^\s'"`]+))""")
ENDS = re.compile(r"(?<=[\w\]>*…])[),.;:。；，）]+$|^[&|;#(].*$")
"""Of a word with which the command ends, and words that are none of it."""
TEXTS = ("*.md", "*.py", "*.toml", "*.ts", "*.tsx", "*.html", "*.sh", "*.yaml", "*Dockerfile", "Makefile")
OF_OTHERS = {
    *("cloudpickle", "cffi", "cmake", "horovod", "packaging", "psutil", "setuptools", "tensorflow-cpu", "wheel"),
    *("megatron-core", "mpi4py", "optax", "pre-commit", "uv"),
}
"""Packages that pages name and that pyproject.toml does not: those of one framework alone, and of contributors."""


def named_installs(text: str) -> Iterator[str]:
    """Yields what each `pip install` of the text names, without options."""
    text = text.replace("\\\n", " ").replace("\\", "")
    for start in INSTALL.finditer(text):
        at, option = start.end(), ""
        while found := WORD.match(text, at):
            at = found.end()
            bare, ended = found[3] or "", ENDS.search(found[3] or "")
            word = found[1] or found[2] or ENDS.sub("", bare)
            if word and not bare.startswith("-") and option not in {"-r", "--requirement", "--target", "--no-binary"}:
                yield word
            option = bare
            if ended or not word:
                break


def is_ours_to_name(word: str, known: dict[str, Requirement]) -> bool:
    """Whether a word of `pip install` is a path, a platform's wheel, or a package of pyproject.toml or OF_OTHERS."""
    wheel = re.escape(client_wheel.build_wheel().name)
    if re.fullmatch(rf"(fermi-training(\[\w+\])? @ )?https?://[\w.:]+/client/{wheel}", word):
        return True
    if re.match(r"(\.|/|~|\w+/|\{|\$)", word) or word == "…":  # a path, or what the program puts in
        return True
    try:
        named = Requirement(word)
    except InvalidRequirement:
        return False
    ours = known.get(named.name.lower())
    return named.name in OF_OTHERS or (ours is not None and (not named.specifier or named.specifier == ours.specifier))


def test_every_documented_install_is_of_a_known_package(root: Path) -> None:
    """`fermi` on the public index is another project's."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    known = {one.name.lower(): one for group in groups for one in map(Requirement, group)}
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *TEXTS]
    try:
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository")
    paths = [root / name for name in names if not name.startswith(("tests/", "CHANGELOG")) and (root / name).is_file()]
    found = [(path, word) for path in paths for word in named_installs(path.read_text("utf-8"))]
    assert {word for _, word in found} >= {".", "torch", "asyncssh>=2.24,<3"}
    wrong = [f"{path.relative_to(root)}: {word}" for path, word in found if not is_ours_to_name(word, known)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("`pip install 'fermi[ssh]'` and more", ["fermi[ssh]"]),
        ("pip install fermi", ["fermi"]),
        ('f"{python} -m pip install -r x.txt fermi-training"', ["fermi-training"]),
        ("pip install 'wandb>=1'", ["wandb>=1"]),
    ],
)
def test_an_install_of_an_unknown_package_is_found(text: str, named: list[str]) -> None:
    assert [
        word for word in named_installs(text) if not is_ours_to_name(word, {"wandb": Requirement("wandb<1")})
    ] == named


def test_the_changelog_is_short_and_lists_what_users_get(root: Path) -> None:
    assert len((root / "CHANGELOG.md").read_text("utf-8").splitlines()) < 150
