"""Sums that do not depend on the placement of blocks: a fixed binary tree over block (or tile) numbers.

Node (level, i) covers leaves i * 2^level up to (i + 1) * 2^level. A node is merged from its two children, the left one
first, in whatever order they arrive; a node whose sibling lies past the last leaf moves up unchanged. A worker sends
the nodes that are complete among its own leaves, and the driver merges the others. Floating-point addition is not
associative; here the additions and their order are the same for any placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Node = tuple[int, int]


class TreeReducer(Generic[T]):
    """Merge values as they arrive.

    Parameters
    ----------
    n_leaves : int
        Leaves of the whole tree, including those that other reducers add.
    merge : callable
        ``merge(left, right)``; may reuse `left`.
    """

    def __init__(self, n_leaves: int, merge: Callable[[T, T], T]) -> None:
        self._n_leaves = n_leaves
        self._merge = merge
        self._nodes: dict[Node, T] = {}
        self._top = max(n_leaves - 1, 0).bit_length()

    def add(self, value: T, index: int, level: int = 0) -> None:
        """Add the value of one node, usually a leaf, and merge upwards as far as possible."""
        while level < self._top:
            sibling = index ^ 1
            if sibling << level < self._n_leaves:
                other = self._nodes.pop((level, sibling), None)
                if other is None:
                    break
                value = self._merge(value, other) if index < sibling else self._merge(other, value)
            level, index = level + 1, index >> 1
        self._nodes[level, index] = value

    def add_nodes(self, nodes: Mapping[Node, T] | Iterable[tuple[Node, T]]) -> None:
        """Add the nodes of another reducer."""
        items = nodes.items() if isinstance(nodes, Mapping) else nodes
        for (level, index), value in items:
            self.add(value, index, level)

    def nodes(self) -> dict[Node, T]:
        """Return the values of the largest complete subtrees."""
        return dict(self._nodes)

    def root(self) -> T:
        """Return the value of the whole tree.

        Raises
        ------
        LookupError
            A leaf is missing.
        """
        try:
            return self._nodes[self._top, 0]
        except KeyError:
            raise LookupError(f"incomplete reduction: have nodes {sorted(self._nodes)}") from None


def leaves(nodes: Any, n_blocks: int) -> Iterator[tuple[Any, range]]:
    """Yield the answers of a reduction's nodes with the blocks that each is of; `ValueError` for what is no such node.

    Parameters
    ----------
    nodes : object
        What came; (level, index) to an answer.
    n_blocks : int
        Blocks of the run.
    """
    if not isinstance(nodes, dict):
        raise ValueError(f"it is a {type(nodes).__name__}, no sums by blocks")
    for node, answer in nodes.items():
        whole = isinstance(node, tuple) and len(node) == 2 and all(type(part) is int for part in node)
        if not whole or not 0 <= node[0] <= n_blocks.bit_length() or not 0 <= node[1] << node[0] < n_blocks:
            raise ValueError(f"it has sums of {node!r:.80}, which are no blocks of the run")
        first = node[1] << node[0]
        yield answer, range(first, min(first + (1 << node[0]), n_blocks))
