"""Names of files as they are shown: nothing in them is hidden, and no two look alike by it."""

import sys
import unicodedata

import pytest

from fermi import messages
from fermi.characters import escape_bidi, escape_name
from fermi.cli import output


@pytest.mark.parametrize(("name", "shown"), [
    ("report.pdf", "report.pdf"), ("报告 2.txt", "报告 2.txt"), ("全\u3000角", "全\u3000角"),
    ("a\u202egpj.exe", r"a\u202egpj.exe"), ("a\u2066b\u2069", r"a\u2066b\u2069"),
    ("zero\u200bwidth", r"zero\u200bwidth"), ("soft\xadhyphen", r"soft\u00adhyphen"), ("filler\u3164", r"filler\u3164"),
    ("blank\xa0", r"blank\u00a0"), ("line\nbreak\x1b[2J", r"line\u000abreak\u001b[2J"), ("back\\slash", r"back\\slash"),
    ("tag\U000e0041", r"tag\u{e0041}"), ("half\ud800", r"half\ud800"),
])  # fmt: skip
def test_invisible_characters_are_escaped(name: str, shown: str) -> None:
    assert escape_name(name) == shown


def test_format_characters_line_breaks_and_controls_are_escaped() -> None:
    seen = {char for char in map(chr, range(sys.maxunicode + 1)) if escape_name(char) == char}
    assert not {unicodedata.category(char) for char in seen} & {"Cc", "Cs", "Zl", "Zp"}
    assert {f"{ord(char):04x}" for char in seen if unicodedata.category(char) == "Zs"} == {"0020", "3000"}
    shown = {char for char in seen if unicodedata.category(char) == "Cf"}
    assert all(unicodedata.bidirectional(char) in ("AN", "AL", "L") for char in shown), "only marks that have a shape"


def test_different_names_are_displayed_differently() -> None:
    names = ["a\u202eb", r"a\u202eb", "a\\\u202eb", "ab", "a\nb", "a\\nb"]
    assert len({escape_name(name) for name in names}) == len(names)


def test_bidirectional_overrides_are_escaped_on_the_command_line() -> None:
    assert output.escape_controls("rank 0: \u202etxt\u202c") == r"rank 0: \u202etxt\u202c"
    assert output.format_json({"name": "a\u202eb\ud800"}) == '{"name": "a\\u202eb\\ud800"}'
    assert "\u202e" not in output.format_yaml({"name": "报告\u202eb"})
    assert "报告" in output.format_yaml({"name": "报告"})
    assert escape_bidi("مرحبا") == "مرحبا"


def test_file_names_in_texts_are_escaped() -> None:
    said = messages.render_text("FILE_EXISTS", "en", path="a\u202egpj.exe")[0]
    assert "\u202e" not in said
    assert r"a\u202egpj.exe" in said
