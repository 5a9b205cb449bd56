"""Writes series as a platform that has been measuring would have."""

from collections.abc import Mapping, Sequence

from apps.telemetry.writer import TelemetryWriter


def measured(
    subject: str, begins: float, values: Mapping[str, Sequence[float]], *, emulated: bool = False, flush: bool = True
) -> None:
    """`values`: by key, one for each quarter of a minute from `begins` (unix seconds) on."""
    moment = begins
    writer = TelemetryWriter(lambda: moment)
    for at in range(max(map(len, values.values()))):
        moment = begins + 15 * at
        writer.put(
            subject, moment, {key: told[at] for key, told in values.items() if at < len(told)}, emulated=emulated
        )
    if flush:
        moment += 60
        writer.flush()
