"""Which installed modules a task's own code needs."""

import hashlib

from fermi.jobs.snapshot import SnapshotFile
from fermi.jobs.spec import Entrypoint
from fermi.planning import imports
from fermi.planning.imports import MAX_FILES, MAX_MODULES, Imports


def find_imports(files: dict[str, str], script: str = "train.py", module: str = "") -> Imports:
    blobs = {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in files.values()}
    listed = {
        path: SnapshotFile(path, size=len(text.encode()), sha256=hashlib.sha256(text.encode()).hexdigest())
        for path, text in files.items()
    }
    entry = Entrypoint(module=module) if module else Entrypoint(script=script)
    return imports.find_code_imports(entry, listed, blobs.__getitem__)


def test_the_scripts_imports_are_listed_with_lines() -> None:
    found = find_imports({"train.py": "import os\nimport torch.nn as nn, numpy\nfrom einops import rearrange\n"})
    assert found.needed == {"torch": "train.py:2", "numpy": "train.py:2", "einops": "train.py:3"}


def test_imports_within_functions_count() -> None:
    found = find_imports(
        {"train.py": "def main():\n    import timm\nclass A:\n    import yaml\nif True:\n    import tqdm\n"}
    )
    assert set(found.needed) == {"timm", "yaml", "tqdm"}


def test_optional_imports_do_not_count() -> None:
    text = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import stubs\nelse:\n    import real\n"
        "try:\n    import apex\nexcept ImportError:\n    apex = None\n"
        "try:\n    import a\nexcept (ValueError, ModuleNotFoundError):\n    import b\n"
        "try:\n    import c\nexcept:\n    pass\n"
        "try:\n    import needed\nexcept ValueError:\n    pass\n"
        "import sys\nif sys.platform == 'win32':\n    import winreg2\n"
    )
    assert set(find_imports({"train.py": text}).needed) == {"real", "needed"}


def test_modules_of_the_code_are_followed_and_are_no_packages() -> None:
    files = {
        "train.py": "import model\nfrom lib.data import Loader\nfrom lib import helpers\n",
        "model.py": "import timm\nfrom lib.inner import deep\n",
        "lib/__init__.py": "import zarr\n",
        "lib/data.py": "from . import text\nfrom ..other import no\n",
        "lib/text.py": "import sentencepiece\n",
        "lib/helpers.py": "import h5py\n\ndef later():\n    import onnx\n",
        "lib/inner/deep.py": "import msgpack\nif __name__ == '__main__':\n    import fire\n",
        "unused.py": "import unused_package\n",
    }
    found = find_imports(files)
    assert found.needed == {
        "timm": "model.py:1", "zarr": "lib/__init__.py:1", "sentencepiece": "lib/text.py:1", "h5py": "lib/helpers.py:1",
        "msgpack": "lib/inner/deep.py:1",
    }  # fmt: skip
    assert {"lib", "inner", "unused", "text"} <= set(found.local)


def test_a_script_imports_from_its_folder_and_a_module_from_the_root() -> None:
    files = {"jobs/train.py": "import helper\nimport shared\n", "jobs/helper.py": "import yaml", "shared.py": ""}
    assert set(find_imports(files, "jobs/train.py").needed) == {"yaml", "shared"}
    assert "shared" in find_imports(files, "jobs/train.py").local
    assert set(find_imports(files, module="jobs.train").needed) == {"helper"}


def test_a_package_runs_its_main_module() -> None:
    files = {"job/__main__.py": "import tqdm\nfrom .a import b\n", "job/a.py": "import fire"}
    assert set(find_imports(files, module="job").needed) == {"tqdm", "fire"}


def test_other_files_need_no_packages() -> None:
    assert find_imports({"train.py": "import (\n"}).needed == {}
    assert find_imports({"train.py": "\0"}).needed == {}
    assert find_imports({"other.py": ""}).needed == {}
    assert imports.find_script_imports(b"import torch\n\xff", "/x/train.py").needed == {}


def test_import_cycles_and_very_many_files_end() -> None:
    files = {f"m{n}.py": f"import m{n + 1}, package{n}\n" for n in range(MAX_FILES + 50)}
    files |= {"train.py": "import m0\nimport train\n", f"m{MAX_FILES + 50}.py": "import m0"}
    assert len(find_imports(files).needed) == MAX_MODULES


def test_the_text_of_a_single_script_is_enough() -> None:
    assert imports.find_script_imports(b"import torch\nfrom a.b import c\n", "/data/train.py").needed == {
        "torch": "/data/train.py:1", "a": "/data/train.py:2",
    }  # fmt: skip
