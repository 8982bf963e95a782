"""Reads a page of a report as a program would."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input", "col"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str | None]
    parent: Node | None = None
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str, **attributes: str) -> list[Node]:
        """Descendants in order, by tag and attributes."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found: list[Node] = []
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag and all(child.attributes.get(name) == value for name, value in wanted.items()):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> Node:
        (found,) = self.all(tag, **attributes)
        return found

    def table(self, label: str) -> list[list[str]]:
        """Cells of the table in the region of that name, the header first."""
        return [
            [" ".join(cell.text.split()) for cell in row.children if isinstance(cell, Node)]
            for row in self.one("div", role="region", aria_label=label).all("tr")
        ]

    def figures(self) -> dict[str, tuple[str, str | None]]:
        """Name of every tile, its text, and its value in full."""
        found = {}
        for tile in (node for tiles in self.all("dl", class_="tiles") for node in tiles.all("div")):
            data = tile.one("dd").all("data")
            found[tile.one("dt").text] = (tile.one("dd").text.strip(), data[0].attributes["value"] if data else None)
        return found


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.now = Node("document", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), self.now)
        self.now.children.append(node)
        if tag not in VOID:
            self.now = node

    def handle_endtag(self, tag: str) -> None:
        assert self.now.tag == tag, f"</{tag}> closes <{self.now.tag}>"
        assert self.now.parent is not None
        self.now = self.now.parent

    def handle_data(self, data: str) -> None:
        self.now.children.append(data)


def parse(page: str) -> Node:
    """Build the tree of a page whose elements are all closed."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert builder.now is builder.root, f"<{builder.now.tag}> is not closed"
    return builder.root


def addresses(page: str) -> list[str]:
    """Everything that a browser might fetch or follow."""
    found = re.findall(r"""(?:src|href|action|data|poster|xlink:href)\s*=\s*["']([^"']*)""", page)
    return [*found, *re.findall(r"url\(([^)]*)\)", page), *re.findall(r"@import[^;]*", page)]
