"""Errors of planning and engines.

LaunchError
├── UnknownNameError     a framework or backend that the registry does not have
└── BackendError         the engine could not be asked, or refused; `permanent` = retrying cannot help
"""

from fermi.schema import sanitize


class LaunchError(Exception):
    """Error with a stable `code` that has a text in `fermi.messages`, filled from `params`. Callers match on the code,
    never on the text."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}" if params else code)
        self.code = code
        self.params: dict[str, object] = sanitize.sanitize_params(params)


class UnknownNameError(LaunchError):
    """A name that a registry does not have."""


class BackendError(LaunchError):
    """An engine that could not be asked, or refused. `permanent`: retrying cannot help."""

    def __init__(self, code: str, *, permanent: bool = False, **params: object) -> None:
        super().__init__(code, **params)
        self.permanent = permanent
