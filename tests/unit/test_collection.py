"""What collecting the tests costs."""

import subprocess
import sys
from pathlib import Path

from tests.lazy import lazy_import, module_path


def test_a_test_file_that_imports_torch_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    (tmp_path / "test_one.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport torch\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/unit/test_collection.py", tmp_path]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert "collecting tests imports torch: use tests.lazy" in done.stderr + done.stdout
    assert done.returncode == 4, done.stdout


def test_a_lazy_module_is_imported_when_it_is_used(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazy_import("imported_late")
    assert module_path("imported_late") == tmp_path / "imported_late.py"
    assert not hasattr(module, "__wrapped__"), "pytest asks for such names"
    assert "imported_late" not in sys.modules
    monkeypatch.setattr(module, "value", 2)
    assert sys.modules.pop("imported_late").value == 2
