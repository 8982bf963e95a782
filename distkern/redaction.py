"""Takes credentials out of text before it reaches an error, a log, an event or a file.

Every `DistkernError` passes its message through `redact`, run directories and printed JSON their strings through
`redact_values`. What is kept is what a reader needs to recognise a place: scheme, host, bucket, path and the names of
query parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["conceal", "displayed_cause", "names_secret", "redact", "redact_values"]

HIDDEN = "***"
"""Stands for what was taken out."""

# An authority with a colon may hold a secret with slashes and at signs; all up to the token's last at sign goes.
_USER_AND_PASSWORD = re.compile(r"(?<=://)[^/\s'\"@:]*:[^\s'\"]*(?=@)")
_USER = re.compile(r"(?<=://)[^/\s'\"@]+(?=@)")
# Some file systems name places without the scheme of the URL they were opened by.
_BARE = re.compile(r"(?<![\w/.-])[^\s'\"/:@(),<>=]{1,256}:(?!//|:)[^\s'\"@()<>]+@(?=\w)")
_URL_QUERY = re.compile(r"(://[^\s'\"?#]*)([?#][^\s'\"]*)")
_PARAMETER = re.compile(r"([?&;#][^=&;#\s]*=)[^&;#\s]*")
_NAMED = re.compile(
    r"(?i)((?:secret|token|passw(?:or)?d|pwd|signature|credential|api[_-]?key|access[_-]?key|account[_-]?key)"
    r"[\w.-]{0,64}[\"']?\s*[=:]\s*[\"']?)(?!//)([^\s\"',;&)}\]]+)"
)
_AUTHORIZATION = re.compile(
    r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?[^\s\"']+"
)


_LEAST_SECRET = 4
_concealed: set[str] = set()


def conceal(secret: str) -> None:
    """Take a text out of everything that passes `redact` from now on, wherever it stands.

    Parameters
    ----------
    secret : str
        Known to be a credential. What is shorter than four characters is left alone: it would be found in words.
    """
    if len(secret) >= _LEAST_SECRET:
        _concealed.add(secret)


def names_secret(name: str) -> bool:
    """Tell whether a name speaks of a credential, as ``AWS_SECRET_ACCESS_KEY`` or ``token`` do."""
    return _NAMED.search(f"{name}=x") is not None


def redact(text: str) -> str:
    """Replace credentials in a text.

    Parameters
    ----------
    text : str
        Anything, usually with a path or a URL in it.

    Returns
    -------
    str
        The text with user names and passwords of URLs, the values of their query parameters, and values that follow
        a name such as ``secret`` or ``token``, and what was given to `conceal`, replaced by ``***``.
    """
    for secret in sorted(_concealed, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _USER_AND_PASSWORD.sub(HIDDEN, text)
        text = _USER.sub(HIDDEN, text)
        text = _URL_QUERY.sub(lambda found: found[1] + _PARAMETER.sub(rf"\g<1>{HIDDEN}", found[2]), text)
    if "@" in text:
        text = _BARE.sub(f"{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text)
    return _NAMED.sub(rf"\g<1>{HIDDEN}", text)


def redact_values(value: Any) -> Any:
    """Apply `redact` to every text in nested mappings, lists and tuples.

    Parameters
    ----------
    value : object
        JSON-like values; what is no text and no container passes.

    Returns
    -------
    object
        The same structure; tuples become lists. The value of a key such as ``secret`` is hidden whole.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_item(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_values(item) for item in value]
    return value


def _redact_item(key: str, item: Any) -> Any:
    if isinstance(item, str) and item and names_secret(key):
        return HIDDEN
    return redact_values(item)


def displayed_cause(error: BaseException) -> BaseException | None:
    """Return an error that may be shown as the cause of another one; None where its text holds credentials.

    Parameters
    ----------
    error : BaseException
        What a library raised.
    """
    seen: BaseException | None = error
    while seen is not None:
        if any(redact(str(argument)) != str(argument) for argument in (seen, *seen.args)):
            return None
        seen = seen.__cause__ or seen.__context__
    return error
