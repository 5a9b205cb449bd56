"""The documentation that the platform serves to agents."""

import re
import subprocess

import pytest
from django.test import Client

from server import documents
from server.paths import ROOT


def test_the_index_is_served_without_sign_in_and_each_of_its_links_leads_to_a_page():
    answer = Client().get("/llms.txt")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    links = re.findall(r"\]\(([^)]+)\)", answer.content.decode())
    assert len(links) > 3
    for link in links:
        page = Client().get(link)
        assert (page.status_code, bool(page.content)) == (200, True), link


@pytest.mark.parametrize(
    "name", ["decisions/0001-dependencies-and-pinning.md", "../pyproject.toml", "%2e%2e/pyproject.toml", "none.md"]
)
def test_no_other_file_is_served(name):
    assert Client().get(f"/docs/{name}").status_code == 404


def test_without_the_documentation_there_is_no_index(monkeypatch, tmp_path):
    monkeypatch.setattr(documents, "DOCS", tmp_path)
    documents.list_pages.cache_clear()
    try:
        assert Client().get("/llms.txt").status_code == 404
    finally:
        documents.list_pages.cache_clear()


def test_the_image_has_each_page():
    listed = {f"docs/{name}" for name in documents.list_pages()}
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!docs/")]
    tracked = set(subprocess.check_output(["git", "ls-files", *kept], cwd=ROOT, text=True).split())
    assert listed <= tracked
    assert "COPY docs docs\n" in (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
