"""Secrets that the platform itself gives to an environment with a purpose (`Hosted.purpose`), new ones for each run.

    FERMI_ENVIRONMENT_TOKEN   what its program shows to the platform: valid while the run is the environment's newest
                              and the environment is to run
    FERMI_PROXY_KEY           what the proxy sends with each request (PROXY_KEY_HEADER), so that its program can refuse
                              other processes of its host, which reach the same ports on loopback

In a spec, their variables stand among `secret_env` without the name of a secret. They are stored nowhere.
"""

from collections.abc import Mapping
from dataclasses import replace

from django.core import signing
from django.utils.crypto import salted_hmac

from apps.accounts import secrets as project_secrets
from apps.environments.models import Hosted
from apps.environments.states import DesiredState, EnvironmentState
from fermi.engines.environments import EnvironmentSpec

TOKEN_VARIABLE, KEY_VARIABLE = "FERMI_ENVIRONMENT_TOKEN", "FERMI_PROXY_KEY"
PROXY_KEY_HEADER = b"x-fermi-proxy-key"
TOKEN_PREFIX = "fermi-env-"
MAX_TOKEN_LENGTH = 300
_SALT = "fermi.environment"


def add_own_secrets(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return the spec with the variables of the platform's secrets."""
    return replace(spec, secret_env={**spec.secret_env, TOKEN_VARIABLE: "", KEY_VARIABLE: ""})


def make_environment_token(environment_id: str, run: int) -> str:
    """Return the token of a run."""
    return TOKEN_PREFIX + signing.Signer(salt=_SALT).sign(f"{environment_id}.{run}")


def find_token_environment(token: str) -> Hosted | None:
    """Return the environment whose present run has this token, or None."""
    if not token.startswith(TOKEN_PREFIX) or len(token) > MAX_TOKEN_LENGTH:
        return None
    try:
        key, _, run = signing.Signer(salt=_SALT).unsign(token.removeprefix(TOKEN_PREFIX)).rpartition(".")
    except signing.BadSignature:
        return None
    rows = Hosted.objects.select_related("environment").filter(pk=key, run=int(run), wanted=DesiredState.RUNNING)
    return rows.filter(state__in=(EnvironmentState.STARTING, EnvironmentState.RUNNING)).exclude(purpose="").first()


def make_proxy_key(environment_id: str, run: int) -> str:
    """Return the key that the proxy sends with requests to a run."""
    return salted_hmac("fermi.proxy-key", f"{environment_id}.{run}", algorithm="sha256").hexdigest()


def reveal_run_secrets(spec: EnvironmentSpec) -> dict[str, str]:
    """Return the value of each variable of `secret_env` for the run of the spec. Raises SecretUnavailableError."""
    named = {variable: name for variable, name in spec.secret_env.items() if name}
    own: Mapping[str, str] = {
        TOKEN_VARIABLE: make_environment_token(spec.id, spec.run),
        KEY_VARIABLE: make_proxy_key(spec.id, spec.run),
    }
    given = {variable: own[variable] for variable, name in spec.secret_env.items() if not name and variable in own}
    return {**project_secrets.reveal_secrets(spec.project, named), **given}
