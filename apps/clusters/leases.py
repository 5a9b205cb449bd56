"""Leases of environments and ports. Primary keys and constraints decide races, not a check before the write."""

from collections.abc import Iterable, Sequence

from django.db import transaction

from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease, PortLease

UNUSABLE_HOLDER = ""
"""Holder of an environment that is not running or is cordoned."""


class NoFreePortError(Exception):
    """Every candidate port is leased already."""


def acquire_leases(environment_ids: Iterable[str], holder: str) -> list[tuple[str, str]] | None:
    """Acquire leases of all these environments, or of none. Returns None if `holder` has them all (also if it had them
    before), else pairs of environment and its holder.

    An environment that is not running or is cordoned has the holder UNUSABLE_HOLDER. Rows are inserted in the order of
    the ids, so that two tasks that want the same environments wait for each other once and never hold half of them
    each.
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
            held = [(key, UNUSABLE_HOLDER if key not in usable else holders.get(key, holder)) for key in wanted]
            others = [(key, by) for key, by in held if by != holder]
            if not others and len(holders) == len(wanted):
                return None
            transaction.set_rollback(True)
        if others:
            return others
        # A conflicting lease was given back between the insertion and the look: try again.


def list_held_environments(holder: str) -> set[str]:
    """Return the ids of the environments that `holder` has."""
    return set(Lease.objects.filter(holder=holder).values_list("environment_id", flat=True))


def record_holder(environment_ids: Iterable[str], holder: str) -> None:
    """Record `holder` for those of the environments that have none. For engines whose own queue decides what runs;
    environments that are held already are no error."""
    rows = [Lease(environment_id=key, holder=holder) for key in sorted(set(environment_ids))]
    Lease.objects.bulk_create(rows, ignore_conflicts=True)


def release_leases(holder: str, environment_ids: Iterable[str] | None = None) -> int:
    """Release these leases of `holder`, or all of them. Returns how many environments became free."""
    mine = Lease.objects.filter(holder=holder)
    return (mine if environment_ids is None else mine.filter(environment__in=environment_ids)).delete()[0]


def acquire_port(host: str, candidates: Sequence[int], holder: str) -> int:
    """Return the port that `holder` has on `host`, or lease the first free candidate. Raises NoFreePortError."""
    mine = PortLease.objects.filter(host=host, holder=holder).values_list("port", flat=True).first()
    if mine is not None:
        return mine
    for port in candidates:
        _, created = PortLease.objects.get_or_create(host=host, port=port, defaults={"holder": holder})
        if created:
            return port
    raise NoFreePortError(host)


def list_leased_ports(host: str) -> set[int]:
    """Return the ports that are leased on `host`."""
    return set(PortLease.objects.filter(host=host).values_list("port", flat=True))


def release_ports(holder: str) -> int:
    """Release all ports of `holder`. Returns their number."""
    return PortLease.objects.filter(holder=holder).delete()[0]
