"""Who holds which environment, and which port. Primary keys and constraints decide races, not a look before a leap."""

from collections.abc import Iterable, Sequence

from django.db import transaction

from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease, PortLease

UNUSABLE = ""


class NoFreePort(Exception):
    """Every candidate is held by somebody else."""


def take(environment_ids: Iterable[str], holder: str) -> list[tuple[str, str]] | None:
    """Everything or nothing. None = `holder` has them all (again, if it had them before); else who holds what.

    An environment that is not running or cordoned is held by `UNUSABLE`. Insertion is in the order of the ids, so that
    two tasks that want the same ones wait for each other once and never hold halves.
    """
    wanted = sorted(set(environment_ids))
    while True:
        with transaction.atomic():
            Lease.objects.bulk_create(
                [Lease(environment_id=key, holder=holder) for key in wanted], ignore_conflicts=True
            )
            holders = dict(Lease.objects.filter(environment__in=wanted).values_list("environment_id", "holder"))
            usable = set(
                DevEnvironment.objects.filter(
                    pk__in=wanted, status=EnvironmentStatus.RUNNING, cordoned=False
                ).values_list("pk", flat=True)
            )
            held = [(key, UNUSABLE if key not in usable else holders.get(key, holder)) for key in wanted]
            others = [(key, by) for key, by in held if by != holder]
            if not others and len(holders) == len(wanted):
                return None
            transaction.set_rollback(True)
        if others:
            return others
        # A conflicting lease was given back between the insertion and the look: try again.


def held(holder: str) -> set[str]:
    """The environments that it has."""
    return set(Lease.objects.filter(holder=holder).values_list("environment_id", flat=True))


def mark(environment_ids: Iterable[str], holder: str) -> None:
    """Where an engine's own queue decides who runs: `holder` has those that nobody has, and is not refused the rest."""
    rows = [Lease(environment_id=key, holder=holder) for key in sorted(set(environment_ids))]
    Lease.objects.bulk_create(rows, ignore_conflicts=True)


def release(holder: str, environment_ids: Iterable[str] | None = None) -> int:
    """Gives back these, or all it has; how many environments became free."""
    mine = Lease.objects.filter(holder=holder)
    return (mine if environment_ids is None else mine.filter(environment__in=environment_ids)).delete()[0]


def take_port(host: str, candidates: Sequence[int], holder: str) -> int:
    """The port `holder` has on `host`, or the first candidate that nobody has. Raises NoFreePort."""
    mine = PortLease.objects.filter(host=host, holder=holder).values_list("port", flat=True).first()
    if mine is not None:
        return mine
    for port in candidates:
        _, created = PortLease.objects.get_or_create(host=host, port=port, defaults={"holder": holder})
        if created:
            return port
    raise NoFreePort(host)


def ports(host: str) -> set[int]:
    """Those that somebody holds on `host` now."""
    return set(PortLease.objects.filter(host=host).values_list("port", flat=True))


def release_ports(holder: str) -> int:
    """How many ports became free."""
    return PortLease.objects.filter(holder=holder).delete()[0]
