"""Errors that keep an agent from working."""

from fermi import messages
from fermi.client import FermiError, ForbiddenError, NotAuthenticatedError


class AgentError(Exception):
    """`code` has a text in `fermi.messages`, filled from `params`."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}")
        self.code, self.params = code, params

    def words(self, lang: str) -> str:
        """Return the text in this language."""
        message, hint = messages.render_text(self.code, lang, **self.params)
        return f"{message}\n{hint}".rstrip()


def convert_refusal(error: FermiError, url: str) -> AgentError:
    """Return the error of a registration that is refused for good."""
    if isinstance(error, NotAuthenticatedError | ForbiddenError):
        return AgentError("WORKER_TOKEN_REFUSED", url=url, why=error.message)
    return AgentError("WORKER_REFUSED", why=format_problems(error))


def format_problems(error: FermiError) -> str:
    """Return all problems of an error in one line."""
    problems = [f"{item.field}: {item.message}" if item.field else item.message for item in error.errors]
    return "; ".join(problems) or error.message
