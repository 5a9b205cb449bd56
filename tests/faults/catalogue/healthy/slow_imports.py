"""Modules that come from slow storage, one after another: more than twenty seconds before the first line."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import importlib, os, sys, time

sys.path.append(os.path.join(os.path.dirname(__file__), "library"))
for number in range(110):
    importlib.import_module(f"part{number}")
from gang import Gang
gang = Gang()
for step in range(60):
    gang.step()
""",
    files={f"library/part{number}.py": "import time\ntime.sleep(0.2)\n" for number in range(110)},
    times=5,
)
