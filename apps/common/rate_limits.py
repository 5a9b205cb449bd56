"""How many requests somebody may make: one bucket for each, counted in Redis by all web processes together.

A bucket has room for the requests of a minute and is refilled evenly. It is stored as one moment, when it will be full
again ("generic cell rate algorithm", ITU-T I.371); the server's clock counts, so that processes need not agree on the
time. One request is one round trip.
"""

import logging
import math
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis

from apps.common import pubsub

log = logging.getLogger(__name__)

KEY_PREFIX = "fermi:rate."
WINDOW_SECONDS = 60
PAUSE_SECONDS = 1.0
"""How long nothing is counted after the server did not answer: requests must not wait for it one by one."""

_DRAW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local each, room, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local later = full + cost * each
local wait = later - room * each - now
if wait > 0 then
  return {0, math.floor((now + room * each - full) / each), math.ceil(wait), math.ceil(full - now)}
end
redis.call('SET', KEYS[1], string.format('%.0f', later), 'PX', math.ceil((later - now) / 1000) + 1)
return {1, math.floor((now + room * each - later) / each), 0, math.ceil(later - now)}
"""

_paused_until = 0.0
_is_away = False


@dataclass(frozen=True, slots=True)
class RateState:
    """A bucket after a request. `policy`: whose kind of bucket; `limit`: requests per minute, which is also its room;
    `remaining`: how many are left at once; `wait`: seconds until the refused request would be allowed; `reset`: seconds
    until the bucket is full."""

    policy: str
    limit: int
    allowed: bool
    remaining: int
    wait: float
    reset: float

    @property
    def retry_after(self) -> int:
        """Whole seconds for the header Retry-After, 1 at least."""
        return max(1, math.ceil(self.wait))


def count_request(policy: str, key: str, limit: int, cost: int = 1) -> RateState | None:
    """Count a request of `cost` against the bucket `policy` of `key`, with `limit` requests per minute. A request that
    is refused takes nothing out of the bucket. Return None where nothing is counted: without a limit (0), and while the
    server does not answer, which is logged once."""
    global _paused_until, _is_away
    if not limit or time.monotonic() < _paused_until:
        return None
    each = WINDOW_SECONDS * 1_000_000 / limit
    try:
        allowed, remaining, wait, reset = _load_script()(
            keys=[f"{KEY_PREFIX}{policy}.{key}"], args=[each, limit, min(cost, limit)]
        )
    except (redis.RedisError, OSError) as error:
        _paused_until = time.monotonic() + PAUSE_SECONDS
        if not _is_away:
            _is_away = True
            log.warning("requests are not counted, and no limit holds, until the broker answers: %s", error)
        return None
    if _is_away:
        _is_away = False
        log.warning("requests are counted again")
    return RateState(policy, limit, bool(allowed), max(0, remaining), wait / 1e6, reset / 1e6)


@cache
def _load_script() -> Any:
    return pubsub.get_client().register_script(_DRAW)


def build_headers(state: RateState) -> dict[str, str]:
    """Return the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10, and Retry-After
    (RFC 9110, 10.2.3) where the request was refused."""
    headers = {
        "RateLimit-Policy": f'"{state.policy}";q={state.limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"{state.policy}";r={state.remaining};t={math.ceil(state.reset)}',
    }
    return headers if state.allowed else {**headers, "Retry-After": str(state.retry_after)}
