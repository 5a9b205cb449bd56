"""What a rank has to bear beside itself."""

import os

from fermi.runner import pressure
from fermi.runner.pressure import Pressure


def test_pressure_is_the_share_of_time_between_two_reads() -> None:
    before, now = Pressure(1.0, 10.0, 5.0, None, 0.0, 7.0), Pressure(3.0, 16.0, 5.0, 3.0, 4096.0, 7.0)
    assert pressure.compute_shares(before, now, 10.0) == {"starved": 0.2, "throttled": 0.6, "read": 410}
    assert pressure.compute_shares(before, now._replace(throttled=999.0), 10.0)["throttled"] == 1.0
    assert pressure.compute_shares(before, now, 0.0) == {}


def test_reading_pressure_never_fails() -> None:
    found = pressure.read_pressure(os.getpid())
    assert found.stolen is not None
    assert all(value is None or value >= 0 for value in found)
    assert pressure.read_pressure(1 << 30)._replace(stolen=None, squeezed=None, throttled=None) == Pressure()
