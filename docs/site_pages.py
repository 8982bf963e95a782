"""What the site is made of beside the pages in this folder, and how links reach it; a hook of mkdocs.

Pages keep the links that are right in the repository. Pages that lie outside this folder join the site,
files that pages link to are copied, and all links are brought to where their targets are on the site. Tables of the
job file's keys come from its schema.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
KEYS = re.compile(r"^<!-- keys: ([\w.]+) -->$", re.MULTILINE)
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "deploy/**/*.md", "examples/**/*.md")
"""Pages of the repository that are not in ``docs``."""

origins: dict[str, str] = {}
"""Which file of the repository each file of the site is."""


def site_place(path: str) -> str:
    """Return where a file of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/")


def outside_pages() -> list[str]:
    """Return the pages outside ``docs``, as paths in the repository."""
    return sorted({path.relative_to(ROOT).as_posix() for pattern in OUTSIDE for path in ROOT.glob(pattern)})


def target_of(page: str, link: str) -> str | None:
    """Return the file of the repository that a link on a page leads to, or None if there is none.

    A folder is its README.md, whether there is one or not.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if path.startswith(".."):
        return None
    if (ROOT / path).is_dir():
        return posixpath.join(path, "README.md")
    return path if (ROOT / path).is_file() or (path.endswith("/README.md") and (ROOT / path).parent.is_dir()) else None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the navigation what nobody lists: design notes by number, and how-to pages that have no place yet."""
    assert config.nav is not None
    docs = ROOT / "docs"
    notes = sorted(path.relative_to(docs).as_posix() for path in docs.glob("design/[0-9]*.md"))
    listed = set(_leaves(config.nav))
    others = sorted(path.name for path in docs.glob("*.md") if path.name not in listed)
    others += [page for page in outside_pages() if site_place(page) not in listed]
    for section in config.nav:
        for title, entries in section.items() if isinstance(section, dict) else ():
            if title == "Design":
                entries.extend(notes)
            elif title == "How to":
                entries.extend(others)
    return config


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside ``docs``, and what pages link to: files as they are, folders as lists of their files."""
    origins.clear()
    origins.update({file.src_uri: f"docs/{file.src_uri}" for file in files})
    for path in outside_pages():
        _add(files, config, path)
    waiting = [file for file in files.documentation_pages() if file.src_uri in origins]
    while waiting:
        file = waiting.pop()
        for link, _ in LINK.findall(file.content_string):
            target = target_of(origins[file.src_uri], link)
            if target is not None and files.get_file_from_path(site_place(target)) is None:
                added = _add(files, config, target)
                if added.is_documentation_page():
                    waiting.append(added)
    return files


def _add(files: Files, config: MkDocsConfig, path: str) -> File:
    """Add a file of the repository to the site."""
    place = site_place(path)
    source = ROOT / path
    if source.exists():
        file = File.generated(config, place, abs_src_path=str(source))
    else:
        names = sorted(item.name for item in source.parent.iterdir() if item.is_file())
        listing = "".join(f"* [{name}]({name})\n" for name in names)
        content = f"# {posixpath.dirname(path)}\n\n{listing}"
        file = File.generated(config, place, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
    files.append(file)
    origins[place] = path
    return file


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Bring links to where their targets are on the site, and fill in the tables of keys."""
    here = posixpath.dirname(page.file.src_uri)
    origin = origins[page.file.src_uri]

    def moved(match: re.Match[str]) -> str:
        target = target_of(origin, match[1])
        if target is None:
            return match[0]
        return f"]({posixpath.relpath(site_place(target), here or '.')}{match[2] or ''})"

    return KEYS.sub(lambda match: table_of_keys(match[1]), LINK.sub(moved, markdown))


def table_of_keys(section: str) -> str:
    """Return a section of the job file, or the stop reasons, as a Markdown table."""
    from distkern.cli.job.model_section import METHODS, model_constraints

    if section == "stop_reasons":
        return table_of_reasons()
    if section == "model":
        rows: dict[str, tuple[str, list[str]]] = {}
        for method in METHODS:
            for name, constraint in model_constraints(method).items():
                rows.setdefault(name, (constraint.wanted, []))[1].append(method)
        lines = ["| key | value | methods |", "|---|---|---|"]
        lines.append(f"| `method` | {_cell(_schema('model').model_fields['method'].description)} | all |")
        for name, (description, methods) in rows.items():
            which = "all" if len(methods) == len(METHODS) else ", ".join(f"`{method}`" for method in methods)
            lines.append(f"| `{name}` | {_cell(description)} | {which} |")
        return "\n".join(lines)
    lines = ["| key | value |", "|---|---|"]
    for name, field in _schema(section).model_fields.items():
        lines.append(f"| `{name}` | {_cell(field.description)} |")
    return "\n".join(lines)


def _schema(section: str) -> Any:
    """Return the schema of a section of the job file, such as ``cluster`` or ``cluster.security``."""
    from distkern.cli.job.job_file import Job, Section

    schema: Any = Job
    for name in section.split("."):
        if name not in schema.model_fields:
            raise PluginError(f"there is no section [{section}] in a job file")
        kind = schema.model_fields[name].annotation
        kinds = (kind, *get_args(kind))
        schema = next(item for item in kinds if isinstance(item, type) and issubclass(item, Section))
    return schema


def table_of_reasons() -> str:
    """Return the reasons why selection ends as a Markdown table."""
    from distkern.selection.stopping import StopReason

    rows = (f"| `{reason}` | {_cell(reason.advice)} |" for reason in StopReason)
    return "\n".join(["| `stop_reason_` | advice |", "|---|---|", *rows])


def _cell(description: str | None) -> str:
    return (description or "see the estimator").replace("|", "\\|")
