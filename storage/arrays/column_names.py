"""Names of columns: which containers have them, and how they are compared with those of other rows.

Where both sides have names, they must be the same; where one has none, only the number of columns is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from distkern.errors import DataError, DataTypeError

__all__ = ["names_of", "require_names"]

_MOST_SHOWN = 5


def names_of(rows: Any) -> list[str] | None:
    """Return the names of the columns of a frame, an xarray DataArray or a `Dataset`; None without.

    Raises
    ------
    DataTypeError
        ``feature-names``: only some of the names are texts.
    DataError
        ``feature-names``: two columns have the same name.
    """
    names = _found(rows)
    texts = sum(isinstance(name, str) for name in names)
    if 0 < texts < len(names):
        other = next(name for name in names if not isinstance(name, str))
        raise DataTypeError(
            f"X has columns whose names are texts, and one named {other!r} of the type {type(other).__name__}: name "
            "all columns by texts, or none",
            kind="feature-names",
        )
    if not texts:
        return None
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(
            f"X has {count} columns with the name {name!r}: give each column its own name, or none",
            kind="feature-names",
        )
    return [str(name) for name in names]


def _found(rows: Any) -> list[Any]:
    attributes = ("feature_names", "column_names", "columns")
    names = next((getattr(rows, name) for name in attributes if hasattr(rows, name)), None)
    if names is None and getattr(rows, "ndim", 0) == 2 and hasattr(rows, "coords"):
        features = rows.dims[1]
        names = rows.coords[features].values.tolist() if features in rows.coords else None
    return [] if names is None else list(names)


def require_names(
    names: Sequence[str] | None, known: Sequence[str] | None, what: str, whose: str, *, any_order: bool = False
) -> None:
    """Refuse columns whose names are not the known ones; without names on one side there is nothing to compare.

    Parameters
    ----------
    names, known : sequence of str or None
        Names of the rows, and those that they must have.
    what, whose : str
        The rows and the owner of the known names, for messages.
    any_order : bool, default False
        Whether the order may differ, as the columns are read by name.

    Raises
    ------
    DataError
        ``feature-names``, with the names that are missing or unknown, or with the first column in another order.
    """
    if names is None or known is None or list(names) == list(known):
        return
    missing, unknown = (list((Counter(a) - Counter(b)).elements()) for a, b in ((known, names), (names, known)))
    if missing or unknown:
        wrong = [f"lacks {_shown(missing)} of {whose}"] if missing else []
        wrong += [f"has {_shown(unknown)}, which {whose} does not have"] if unknown else []
        raise DataError(
            f"{what} {' and '.join(wrong)}: give columns of the same names, or columns without names in the same order",
            kind="feature-names",
        )
    if any_order and len(set(known)) == len(known):
        return
    place, ours, theirs = next((i, a, b) for i, (a, b) in enumerate(zip(known, names, strict=True)) if a != b)
    raise DataError(
        f"{what} has the columns of {whose} in another order: column {place} (counted from 0) is {theirs!r} and must "
        f"be {ours!r}; give them in that order (of feature_names_in_, for a model)",
        kind="feature-names",
    )


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MOST_SHOWN])
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"the column{'s' if len(names) > 1 else ''} {shown}{more}"
