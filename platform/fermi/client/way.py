"""Where a channel is."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Way:
    """`headers` go with the request for it, which is tried `retries` times again while nobody answers."""

    url: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    retries: int = 4

    @property
    def address(self) -> str:
        scheme, _, rest = self.url.partition("://")
        return f"{'wss' if scheme == 'https' else 'ws'}://{rest}{self.path}"
