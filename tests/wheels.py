"""Packages so small that a test makes them itself, and pip needs no index."""

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str = "tiny") -> Path:
    """Returns a wheel with a module `name`, and a program of this name, which prints that it is there."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"def main():\n    print('{name} it is')\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path
