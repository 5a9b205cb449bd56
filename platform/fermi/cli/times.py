"""Times for people, in their own time zone."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

import click

from fermi.cli.texts import _

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)


def parse_moment(text: str, zone: tzinfo | None = None) -> str:
    """Return a time as the API takes it; where the text names no zone it is in `zone`, else local. Raise ValueError."""
    moment = parse_iso(text)
    if moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=zone) if zone else moment.astimezone()
        except OverflowError as beyond:
            raise ValueError(text) from beyond
    return moment.isoformat()


def parse_time_option(text: str | None) -> str | None:
    """Return the time of an option: a time, or an age (`90m`, `6h`, `7d`). Raise click.UsageError."""
    if text is None:
        return None
    if ago := re.fullmatch(r"(\d{1,6})([smhd])", text):
        return (datetime.now(UTC) - timedelta(seconds=int(ago[1]) * UNIT_SECONDS[ago[2]])).isoformat()
    try:
        return parse_moment(text)
    except ValueError:
        raise click.UsageError(_("NOT_A_TIME", given=text)) from None


def format_time(text: str | None) -> str | None:
    """Return a local time: 2026-11-21 13:05:07."""
    return parse_iso(text).astimezone().strftime("%Y-%m-%d %H:%M:%S") if text else None


def format_age(text: str, now: datetime | None = None) -> str:
    return _("TIME_AGO", time=format_duration(((now or datetime.now(UTC)) - parse_iso(text)).total_seconds()))


def format_elapsed(begin: str | None, end: str | None, now: datetime | None = None) -> str | None:
    """Return the time from `begin` to `end`, or until now."""
    if not begin:
        return None
    return format_duration(((parse_iso(end) if end else now or datetime.now(UTC)) - parse_iso(begin)).total_seconds())


def format_time_left(end: str | None, now: datetime | None = None) -> str | None:
    """Return the time until an end that is expected, rounded to what an estimate can say; None if there is none."""
    if not end:
        return None
    seconds = (parse_iso(end) - (now or datetime.now(UTC))).total_seconds()
    if seconds <= 0:
        return None
    return format_duration(seconds if seconds < 60 else round(seconds / 60) * 60)


def format_duration(seconds: float) -> str:
    """Return a duration by its two largest units: 42s, 3m 5s, 2h 10m, 5d 3h."""
    whole = max(int(seconds), 0)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{amount}{unit}" for amount, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if amount]
    return " ".join(parts[:2]) or "0s"


def format_gpu_hours(hours: float | None) -> float | str | None:
    """Return GPU-hours rounded; less than one hour as a duration: 34s, 12m 30s."""
    if hours is None or not 0 < hours < 1:
        return None if hours is None else round(hours, 2)
    return format_duration(max(1, round(hours * 3_600)))
