"""Errors of commands: what is printed on standard error, and the exit code."""

import click

from fermi.cli.texts import _
from fermi.client import (
    FermiError,
    Forbidden,
    InvalidRequest,
    NoPlatform,
    NotAuthenticated,
    NotFound,
    RequestRefused,
    Unreachable,
)

TRAINING_FAILED = 1
REFUSED = 2
NOT_ALLOWED = 3
NOT_FOUND = 4
NO_PLATFORM = 5
INTERRUPTED = 130

CODES: dict[type[FermiError], int] = {
    NotAuthenticated: NOT_ALLOWED,
    Forbidden: NOT_ALLOWED,
    NotFound: NOT_FOUND,
    RequestRefused: REFUSED,
    FermiError: NO_PLATFORM,
}
"""Exit code by class of error; the first class that matches."""


def report(error: BaseException) -> int:
    """Print the error and return the exit code. Raise it again where it is a bug."""
    match error:
        case SystemExit(code=int(code)) | click.exceptions.Exit(exit_code=code):
            return code
        case click.ClickException():
            error.show()
            return REFUSED
        case FermiError():
            _say(error)
            return next(code for kind, code in CODES.items() if isinstance(error, kind))
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
    raise error


def _say(error: FermiError) -> None:
    from fermi.cli.output import fault, problems

    fault(_headline(error))
    problems(error.errors if len(error.errors) > 1 or any(item.field for item in error.errors) else ())
    for advice in _advice(error):
        click.echo(advice, err=True)


def _headline(error: FermiError) -> str:
    match error:
        case NoPlatform(code="NO_PLATFORM"):
            return _("NO_PLATFORM_KNOWN")
        case InvalidRequest(code="SECOND_FACTOR_NEEDED"):
            return _("SECOND_FACTOR_ASKED")
        case Unreachable():
            return _("PLATFORM_NOT_REACHED", why=error.message)
    return _text(error)[0] or error.message


def _text(error: FermiError) -> tuple[str, str]:
    """Return message and hint of an error that carries only its code, as the end of a connection does; "" otherwise."""
    from fermi import messages
    from fermi.cli.texts import language

    return messages.render_text(error.code, language()) if error.message == error.code and error.code else ("", "")


def _advice(error: FermiError) -> list[str]:
    match error:
        case NoPlatform(code="NO_PLATFORM"):
            return [_("START_OR_SIGN_IN")]
        case InvalidRequest(code="SECOND_FACTOR_NEEDED"):
            return [_("MAKE_A_TOKEN")]
        case NotAuthenticated(code="SIGN_IN_REFUSED"):
            return []
        case NotAuthenticated():
            return [_("SIGN_IN_FIRST")]
        case Unreachable():
            return [_("IS_IT_RUNNING")]
    known = [item.hint for item in error.errors] if len(error.errors) == 1 else [_text(error)[1]]
    hints = [hint for hint in known if hint]
    request = [_("REQUEST_ID", id=error.request_id)] if error.status >= 500 and error.request_id else []
    return ([] if any(item.field for item in error.errors) else hints) + request
