"""Files that agents read: the index of the documentation and the skill."""

import re
from pathlib import Path

import pytest

from fermi.cli.registry import COMMANDS
from fermi.mcp.tools import TOOLS

ROOT = Path(__file__).resolve().parents[2]
INDEX, SKILL = ROOT / "docs" / "llms.txt", ROOT / "skills" / "fermi" / "SKILL.md"


@pytest.mark.parametrize("file", [INDEX, SKILL], ids=lambda file: file.name)
def test_each_link_leads_to_a_file(file):
    links = re.findall(r"\]\(([^)#]+)\)", file.read_text("utf-8"))
    assert len(links) > 3
    assert [link for link in links if not (file.parent / link).exists()] == []


def test_the_index_begins_with_a_title_and_a_summary_and_lists_links():
    title, _, summary, *rest = INDEX.read_text("utf-8").splitlines()
    assert title.startswith("# ")
    assert summary.startswith("> ")
    items = [line for line in rest if line.startswith("- ")]
    assert all(re.fullmatch(r"- \[[^]]+\]\([^)]+\): .+", line) for line in items)


def test_the_skill_has_a_name_and_a_description_within_their_limits():
    head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n", SKILL.read_text("utf-8"))
    assert head
    assert head[1] == SKILL.parent.name


def test_the_skill_names_tools_and_commands_that_exist():
    text = SKILL.read_text("utf-8")
    named = set(re.findall(r"`(\w+_\w+)`", text)) - {"wait_seconds", "idempotency_key"}
    assert named <= set(TOOLS)
    commands = set(re.findall(r"`(?:fermi )?([a-z]+)`", text)) - {"fermi", "next", "proposal"}
    assert commands <= set(COMMANDS)
