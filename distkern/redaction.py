"""Replaces credentials in text before the text is in an error, a log, an event or a file.

Every `DistkernError` passes its message through `redact`; run directories and printed JSON pass their strings through
`redact_values`. Scheme, host, bucket, path and the names of query parameters stay, so a reader recognises the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["conceal", "displayed_cause", "names_secret", "redact", "redact_values"]

HIDDEN = "***"
"""Replacement of a credential."""

# A secret after a colon may contain slashes and at signs; all text up to the last at sign of the word is replaced.
_USER_AND_PASSWORD = re.compile(r"(?<=://)[^/\s'\"@:]*:[^\s'\"]*(?=@)")
_USER = re.compile(r"(?<=://)[^/\s'\"@]+(?=@)")
# Some file systems name places without the scheme of the URL that opened them.
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
    """Let `redact` replace a text, from now on, wherever it occurs.

    Parameters
    ----------
    secret : str
        A credential. A text of fewer than four characters is ignored: it would occur in ordinary words.
    """
    if len(secret) >= _LEAST_SECRET:
        _concealed.add(secret)


def names_secret(name: str) -> bool:
    """Return whether a name is that of a credential, such as ``AWS_SECRET_ACCESS_KEY`` or ``token``."""
    return _NAMED.search(f"{name}=x") is not None


def redact(text: str) -> str:
    """Replace credentials in a text.

    Parameters
    ----------
    text : str
        Any text, usually with a path or a URL.

    Returns
    -------
    str
        The text with ``***`` in place of user names and passwords of URLs, of the values of their query parameters, of
        values after a name such as ``secret`` or ``token``, and of the texts of `conceal`.
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
        JSON-like values; other types are returned unchanged.

    Returns
    -------
    object
        The same structure; tuples become lists. The whole value of a key such as ``secret`` is replaced.
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
    """Return an error that may be shown as the cause of another one; None where its text contains credentials.

    Parameters
    ----------
    error : BaseException
        An error that a library raised.
    """
    link: BaseException | None = error
    while link is not None:
        if any(redact(str(argument)) != str(argument) for argument in (link, *link.args)):
            return None
        link = link.__cause__ or link.__context__
    return error
