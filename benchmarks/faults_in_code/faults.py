"""The list of faults, and how one is planted and taken out again."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).with_name("lists")


@dataclass(frozen=True)
class Fault:
    """One change of the code that alters what it does."""

    id: str
    """Name of the fault."""
    room: str
    """Name of the list that it stands in."""
    file: str
    """Path of the changed file from the root of the checkout."""
    kind: str
    """Kind of mistake, such as "sign" or "off by one"."""
    find: str
    """Text to replace; it stands in the file exactly once."""
    put: str
    """Replacement."""
    tests: tuple[str, ...] = ()
    """Test files and folders that may see it; by default the folder that mirrors the file's."""

    def lines(self, text: str) -> range:
        """Return the numbers of the changed lines in the file's text, counted from 1."""
        first = text.partition(self.find)[0].count("\n") + 1
        return range(first, first + self.find.count("\n") + 1)


def load(only: Sequence[str] = ()) -> list[Fault]:
    """Read the lists; with names, these faults alone."""
    found = [
        Fault(room=path.stem, **{**entry, "tests": tuple(entry.get("tests", ()))})
        for path in sorted(LISTS.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["fault"]
    ]
    unknown = set(only) - {fault.id for fault in found}
    if unknown:
        raise click.ClickException(f"the lists have no fault {', '.join(sorted(unknown))}")
    return [fault for fault in found if not only or fault.id in only]


def changed(fault: Fault, root: Path) -> str:
    """Return the text of the file with the fault in it.

    Raises
    ------
    ValueError
        The snippet does not stand in the file exactly once, or the result is no Python.
    """
    path = root / fault.file
    text = path.read_text() if path.exists() else ""
    if text.count(fault.find) != 1:
        raise ValueError(f"{fault.id}: {fault.file} holds {text.count(fault.find)} times {fault.find.strip()!r}")
    result = text.replace(fault.find, fault.put)
    try:
        compile(result, fault.file, "exec")
    except SyntaxError as error:
        raise ValueError(f"{fault.id}: {fault.file} with the fault is no Python: {error}") from None
    return result


def require_matching(faults: Sequence[Fault], root: Path) -> None:
    """Refuse a list that does not fit the checkout, and name every fault that does not."""
    wrong = []
    for fault in faults:
        try:
            changed(fault, root)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise click.ClickException("\n".join([f"{len(wrong)} faults cannot be planted:", *wrong]))


@contextmanager
def planted(fault: Fault, root: Path) -> Iterator[None]:
    """Plant a fault in a checkout, and restore the file at the end."""
    path = root / fault.file
    text = path.read_text()
    _write(path, changed(fault, root))
    try:
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python compares compiled files by size and whole seconds, which a fault may not change.
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def copy_tree(root: Path, target: Path) -> Path:
    """Copy the files of a checkout that git knows or would add; links stay links."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_symlink() or (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    return target
