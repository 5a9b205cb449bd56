"""A Chinese page that has fallen behind its English one is named, with the headings to look at."""

from pathlib import Path

import pytest

from scripts import translations

ENGLISH = "# Slurm\n\nWhat it is.\n\n## Keys\n\n| key | |\n|---|---|\n| `url` | where |\n\n```\n# no heading\n```\n"
CHINESE = "# Slurm 训练\n\n是什么。\n\n## 键\n\n| 键 | |\n|---|---|\n| `url` | 地址 |\n\n```\n# 不是标题\n```\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    for name, text in {"README.md": "# F\n", "README.zh.md": "# F\n"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "docs" / "slurm.md").write_text(ENGLISH, "utf-8")
    (tmp_path / "docs" / "zh" / "slurm.md").write_text(CHINESE, "utf-8")
    translations.record_translated(tmp_path, ["README.zh.md", "docs/zh/slurm.md"])
    return tmp_path


def test_a_reviewed_page_is_up_to_date(project: Path) -> None:
    assert translations.list_stale(project) == []


def test_headings_changed_in_english_are_named(project: Path) -> None:
    page = project / "docs" / "slurm.md"
    page.write_text(ENGLISH.replace("| where |", "| where it answers |"), "utf-8")
    assert translations.list_stale(project) == ["docs/zh/slurm.md: changed in English: 'Keys'"]
    page.write_text(ENGLISH.replace("## Keys", "## Settings"), "utf-8")
    said = translations.list_stale(project)
    assert "docs/zh/slurm.md: new in English: 'Settings'" in said
    assert "docs/zh/slurm.md: no longer in English: 'Keys'" in said
    translations.record_translated(project, ["docs/zh/slurm.md"])
    assert translations.list_stale(project) == []


def test_a_generated_table_is_in_step_by_itself(project: Path) -> None:
    for name, word in (("docs/slurm.md", "where"), ("docs/zh/slurm.md", "地址")):
        page = project / name
        table = f"| `url` | {word} |\n"
        text = page.read_text("utf-8")
        assert table in text
        begin = text.index("|")
        end = text.index(table) + len(table)
        page.write_text(f"{text[:begin]}<!-- generated: keys -->\n{text[begin:end]}<!-- end -->\n{text[end:]}", "utf-8")
    translations.record_translated(project, ["docs/zh/slurm.md"])
    page = project / "docs" / "slurm.md"
    page.write_text(page.read_text("utf-8").replace("| where |\n", "| where |\n| `new` | another |\n"), "utf-8")
    assert translations.list_stale(project) == []


@pytest.mark.parametrize(
    ("added", "named"),
    [("\n## 更多\n", "headings"), ("\n```\nls\n```\n", "code blocks"), ("\n|a|\n|---|\n", "tables")],
)
def test_a_page_with_other_headings_is_named(project: Path, added: str, named: str) -> None:
    page = project / "docs" / "zh" / "slurm.md"
    page.write_text(CHINESE + added, "utf-8")
    [said] = translations.list_stale(project)
    assert said.startswith(f"docs/zh/slurm.md: {named}: ")


def test_a_page_without_its_twin_is_named(project: Path) -> None:
    (project / "docs" / "slurm.md").unlink()
    assert translations.list_stale(project) == ["docs/zh/slurm.md: there is no docs/slurm.md"]
    (project / "docs" / "zh" / "slurm.md").unlink()
    assert translations.list_stale(project) == ["docs/zh/in-step.json: there is no docs/zh/slurm.md"]


def test_an_unreviewed_page_is_named(project: Path) -> None:
    (project / "docs" / "new.md").write_text("# New\n", "utf-8")
    (project / "docs" / "zh" / "new.md").write_text("# 新\n", "utf-8")
    assert "docs/zh/new.md: new in English: 'New'" in translations.list_stale(project)


def test_a_link_to_an_english_page_with_a_chinese_twin_is_named(project: Path) -> None:
    readme = project / "README.zh.md"
    readme.write_text("# F\n\n[English](README.md), [Slurm](docs/slurm.md#keys)\n", "utf-8")
    assert translations.list_stale(project) == ["README.zh.md: docs/zh/slurm.md is there in Chinese"]
    readme.write_text("# F\n\n[English](README.md), [Slurm](docs/zh/slurm.md)\n", "utf-8")
    assert translations.list_stale(project) == []
