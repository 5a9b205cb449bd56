"""Errors of commands: what is printed on standard error, and the exit code."""

import click

from fermi.cli.texts import _
from fermi.client import (
    FermiError,
    ForbiddenError,
    InvalidRequestError,
    NoPlatformError,
    NotAuthenticatedError,
    NotFoundError,
    RequestRefusedError,
    UnreachableError,
)

EXIT_TRAINING_FAILED = 1
EXIT_REFUSED = 2
EXIT_NOT_ALLOWED = 3
EXIT_NOT_FOUND = 4
EXIT_NO_PLATFORM = 5
EXIT_INTERRUPTED = 130

EXIT_CODES: dict[type[FermiError], int] = {
    NotAuthenticatedError: EXIT_NOT_ALLOWED,
    ForbiddenError: EXIT_NOT_ALLOWED,
    NotFoundError: EXIT_NOT_FOUND,
    RequestRefusedError: EXIT_REFUSED,
    FermiError: EXIT_NO_PLATFORM,
}
"""Exit code by class of error; the first class that matches."""


def report_error(error: BaseException) -> int:
    """Print the error and return the exit code. Raise it again where it is a bug."""
    match error:
        case SystemExit(code=int(code)) | click.exceptions.Exit(exit_code=code):
            return code
        case click.ClickException():
            error.show()
            return EXIT_REFUSED
        case FermiError():
            _print_error(error)
            return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
        case KeyboardInterrupt() | click.Abort():
            return EXIT_INTERRUPTED
    raise error


def _print_error(error: FermiError) -> None:
    from fermi.cli.output import print_error, print_problems

    print_error(_choose_headline(error))
    print_problems(error.errors if len(error.errors) > 1 or any(item.field for item in error.errors) else ())
    for advice in _list_advice(error):
        click.echo(advice, err=True)


def _choose_headline(error: FermiError) -> str:
    match error:
        case NoPlatformError(code="NO_PLATFORM"):
            return _("NO_PLATFORM_KNOWN")
        case InvalidRequestError(code="SECOND_FACTOR_NEEDED"):
            return _("SECOND_FACTOR_ASKED")
        case UnreachableError():
            return _("PLATFORM_NOT_REACHED", why=error.message)
    return _lookup_text(error)[0] or error.message


def _lookup_text(error: FermiError) -> tuple[str, str]:
    """Return message and hint of an error that carries only its code, as the end of a connection does; "" otherwise."""
    from fermi import messages
    from fermi.cli.texts import get_language

    return messages.render_text(error.code, get_language()) if error.message == error.code and error.code else ("", "")


def _list_advice(error: FermiError) -> list[str]:
    match error:
        case NoPlatformError(code="NO_PLATFORM"):
            return [_("START_OR_SIGN_IN")]
        case InvalidRequestError(code="SECOND_FACTOR_NEEDED"):
            return [_("MAKE_A_TOKEN")]
        case NotAuthenticatedError(code="SIGN_IN_REFUSED"):
            return []
        case NotAuthenticatedError(code="LOCAL_ACCOUNTS_OFF"):
            return [_("SIGN_IN_WITHOUT_PASSWORD")]
        case NotAuthenticatedError(code="SIGN_IN_DENIED" | "SIGN_IN_EXPIRED" | "SIGN_IN_TIMED_OUT"):
            return [_lookup_text(error)[1]]
        case NotAuthenticatedError():
            return [_("SIGN_IN_FIRST")]
        case UnreachableError():
            return [_("IS_IT_RUNNING")]
    known = [item.hint for item in error.errors] if len(error.errors) == 1 else [_lookup_text(error)[1]]
    hints = [hint for hint in known if hint]
    request = [_("REQUEST_ID", id=error.request_id)] if error.status >= 500 and error.request_id else []
    return ([] if any(item.field for item in error.errors) else hints) + request
