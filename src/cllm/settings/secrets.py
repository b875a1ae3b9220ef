"""The secrets that settings and environment hold, for blotting them out of what is shown."""

from urllib.parse import urlsplit

from cllm.settings.load import Settings
from cllm.settings.trust import looks_secret


def secrets_of(settings: Settings) -> list[str]:
    """Keys, headers and passwords of the settings, and every variable that looks like one."""
    rows = [*settings.providers.values(), *(top.settings for top in settings.top_providers)]
    keys = [row.api_key for row in rows if row.api_key is not None]
    headers = [value for row in rows for value in row.headers.values()]
    revealed = [secret.reveal() for secret in (*keys, *headers)]
    environment = settings.place.environment
    named = [value for name, value in environment.items() if looks_secret(name)]
    variables = [
        str(known.value)
        for name, known in settings.variables.by_name.items()
        if looks_secret(name) and known.value is not None
    ]
    callers = [key.key for key in settings.server.keys if key.key]
    return [*revealed, *named, *variables, *callers, *_password(settings.store)]


def _password(url: str) -> list[str]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return []
    return [] if password is None else [password]
