"""What keeps an agent from working."""

from fermi import messages


class AgentError(Exception):
    """`code` has a text in `fermi.messages`, filled from `params`."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}")
        self.code, self.params = code, params

    def words(self, lang: str) -> str:
        message, hint = messages.text(self.code, lang, **self.params)
        return f"{message}\n{hint}".rstrip()
