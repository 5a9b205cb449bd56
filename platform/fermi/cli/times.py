"""Times for people, in their own time zone."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

import click

from fermi.cli.texts import _

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


def typed(text: str, zone: tzinfo | None = None) -> str:
    """Return a time as the API takes it; where the text names no zone it is in `zone`, else local. Raise ValueError."""
    moment = parse(text)
    if moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=zone) if zone else moment.astimezone()
        except OverflowError as beyond:
            raise ValueError(text) from beyond
    return moment.isoformat()


def moment(given: str | None) -> str | None:
    """Return the time of an option: a time, or an age (`90m`, `6h`, `7d`). Raise click.UsageError."""
    if given is None:
        return None
    if ago := re.fullmatch(r"(\d{1,6})([smhd])", given):
        return (datetime.now(UTC) - timedelta(seconds=int(ago[1]) * UNITS[ago[2]])).isoformat()
    try:
        return typed(given)
    except ValueError:
        raise click.UsageError(_("NOT_A_TIME", given=given)) from None


def clock(text: str | None) -> str | None:
    """Return a local time: 2026-11-21 13:05:07."""
    return parse(text).astimezone().strftime("%Y-%m-%d %H:%M:%S") if text else None


def ago(text: str, now: datetime | None = None) -> str:
    return _("TIME_AGO", time=short(((now or datetime.now(UTC)) - parse(text)).total_seconds()))


def lasting(begin: str | None, end: str | None, now: datetime | None = None) -> str | None:
    """Return the time from `begin` to `end`, or until now."""
    if not begin:
        return None
    return short(((parse(end) if end else now or datetime.now(UTC)) - parse(begin)).total_seconds())


def short(seconds: float) -> str:
    """Return a duration by its two largest units: 42s, 3m 5s, 2h 10m, 5d 3h."""
    whole = max(int(seconds), 0)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{amount}{unit}" for amount, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if amount]
    return " ".join(parts[:2]) or "0s"


def gpu_hours(hours: float | None) -> float | str | None:
    """Return GPU-hours rounded; less than one hour as a duration: 34s, 12m 30s."""
    if hours is None or not 0 < hours < 1:
        return None if hours is None else round(hours, 2)
    return short(max(1, round(hours * 3_600)))
