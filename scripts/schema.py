"""Write everything that is generated from the API's code (`make schema`); with --check only compare.

docs/openapi.json                 from the views and serializers; a warning of the generator is an error
frontend/src/api/schema.d.ts      from docs/openapi.json
frontend/src/api/request.json     from fermi.planning.request, for the form
docs/{cli,notifications,telemetry}.md and docs/zh: their tables, see `doc_tables`
"""

import difflib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts import doc_tables

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "openapi.json"
FORM = ROOT / "frontend" / "src" / "api" / "request.json"


def write_document(path: Path) -> None:
    command = [sys.executable, "manage.py", "spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json"]
    subprocess.run([*command, "--file", str(path)], cwd=ROOT, check=True)


def write_form(path: Path) -> None:
    """Write the request's fields, as the create page and its recipes read them."""
    from fermi.jobs import json_shape
    from fermi.planning.request import TaskRequest

    path.write_text(json.dumps(json_shape.build_schema(TaskRequest), indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_page(source: Path, lang: str, path: Path) -> None:
    """Write the page `source` to `path`, with its generated tables as the code has them."""
    path.write_text(doc_tables.fill_tables(source.read_text("utf-8"), lang), "utf-8")


def print_drift() -> int:
    changed = []
    with tempfile.TemporaryDirectory() as scratch:
        for path, write in GENERATED.items():
            fresh = Path(scratch) / path.name
            write(fresh)
            old = path.read_text("utf-8").splitlines() if path.exists() else []
            name = str(path.relative_to(ROOT))
            changes = list(
                difflib.unified_diff(old, fresh.read_text("utf-8").splitlines(), name, "the code", "", "", 2)
            )
            print("\n".join(changes[:60]))
            changed += [name] if changes else []
    if changed:
        print(f"{' and '.join(changed)} not what the code says: run `make schema` and commit the result.")
    return 1 if changed else 0


GENERATED: dict[Path, Callable[[Path], None]] = {
    DOCUMENT: write_document,
    FORM: write_form,
    **{page: partial(write_page, page, lang) for page, lang in doc_tables.PAGES.items()},
}


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return print_drift()
    for path, write in GENERATED.items():
        write(path)
    subprocess.run([sys.executable, "scripts/generate_client.py"], cwd=ROOT, check=True)
    subprocess.run(["npm", "run", "--silent", "types"], cwd=ROOT / "frontend", check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
