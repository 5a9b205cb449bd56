"""What can go wrong while launching.

LaunchError
├── UnknownName          a framework or backend that the registry does not have
└── BackendError         the engine could not be asked, or refused; `permanent` = asking again cannot help
"""

from fermi.schema import sanitize


class LaunchError(Exception):
    """`code` is stable and has a text in `fermi.messages`; `params` fill it. Nobody matches on the text."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}" if params else code)
        self.code = code
        self.params: dict[str, object] = sanitize.params(params)


class UnknownName(LaunchError):
    pass


class BackendError(LaunchError):
    def __init__(self, code: str, *, permanent: bool = False, **params: object) -> None:
        super().__init__(code, **params)
        self.permanent = permanent
