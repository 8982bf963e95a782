"""Chunks of lazy dask arrays, computed one block at a time: what several blocks need is computed once.

A scaled array, ``(X - X.mean(0)) / X.std(0)``, computes the mean of all rows for each of its chunks. Such results are
computed before the first block and kept, while they are small; the rest of each block's graph is its own. Covers
graphs only; `dask_arrays` knows what the arrays are.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from distkern.errors import LazyRowsWarning
from distkern.storage.arrays.lazy import compute_options

SHARED_BYTES = 64 << 20
"""Most bytes of results that are kept for all blocks."""

MOST_TIMES = 2
"""Most computations of one result in each pass over the blocks without a warning."""

_SEVERAL = -1


class LazyBlocks:
    """Blocks of dask arrays.

    What several blocks need is computed when the first block is read.

    Parameters
    ----------
    arrays : mapping of str to dask.array.Array
        Arrays by name.
    keys : mapping of str to sequence
        Keys of the chunks of each array, one for each block.
    most_bytes : int, default SHARED_BYTES
        Most bytes of results that are kept for all blocks.

    Attributes
    ----------
    names : tuple of str
        Names of the arrays.
    """

    def __init__(
        self, arrays: Mapping[str, Any], keys: Mapping[str, Sequence[Any]], most_bytes: int = SHARED_BYTES
    ) -> None:
        self.names = tuple(arrays)
        self._arrays = dict(arrays)
        self._keys = dict(keys)
        self._most_bytes = most_bytes
        # Blocks are computed on other threads, too, while the thread of the caller waits for them.
        self._options = compute_options(*arrays.values())
        self._lock = threading.Lock()
        self._graph: _Graph | None = None
        self._ready = False
        self._kept: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyBlocks, (self._arrays, self._keys, self._most_bytes)

    def compute(self, block: int, names: Sequence[str]) -> tuple[Any, ...]:
        """Compute the chunks of one block, those of all named arrays in one call."""
        with self._lock:
            graph = self._prepared()
        return _computed([self._keys[name][block] for name in names], graph, self._kept, self._options)

    def related(self, first: str, second: str) -> bool:
        """Return whether the chunks of two arrays have tasks in common, so that one call for both is cheaper."""
        with self._lock:
            graph = self._prepared()
        own, other = (set(graph.needed(self._keys[name][:1], self._kept)) for name in (first, second))
        return not (own & other) <= graph.plain | self._kept.keys()

    def most_kept(self) -> int:
        """Return the most bytes of results that are kept, without a computation: none where blocks share no task."""
        with self._lock:
            return self._most_bytes if self._whole().shared(self._outputs(), self._kept, set()) or self._kept else 0

    def _outputs(self) -> list[list[Any]]:
        """Return the keys of each block."""
        return [list(keys) for keys in zip(*self._keys.values(), strict=True)]

    def _whole(self) -> _Graph:
        """Return the graph of all blocks."""
        if self._graph is None:
            from dask.highlevelgraph import HighLevelGraph

            # dask's own optimisation would fuse a task that two arrays need into a task of each.
            merged = HighLevelGraph.merge(*(array.__dask_graph__() for array in self._arrays.values()))
            self._graph = _Graph(dict(merged.cull({key for keys in self._keys.values() for key in keys})))
        return self._graph

    def _prepared(self) -> _Graph:
        """Return the graph of all blocks, with what several of them need computed."""
        graph = self._whole()
        if self._ready:
            return graph
        outputs = self._outputs()
        inline: set[Any] = set()
        room = self._most_bytes
        while shared := graph.shared(outputs, self._kept, inline):
            layers = defaultdict(list)
            for key in graph.first_of(shared, self._kept):
                layers[_layer(key)].append(key)
            # The other results of a layer are taken to be as large as its first; layers are tried together, as they
            # often have the same source.
            probes = {name: keys[0] for name, keys in layers.items()}
            found, sizes = _persisted(list(probes.values()), graph, self._kept, self._options)
            accepted = []
            for name in sorted(probes, key=lambda name: sizes[probes[name]] * len(layers[name])):
                nbytes = sizes[probes[name]] * len(layers[name])
                if nbytes > room:
                    inline.add(name)
                    continue
                room -= nbytes
                accepted.append(name)
            self._kept |= {probes[name]: found[probes[name]] for name in accepted}
            rest = [key for name in accepted for key in layers[name][1:]]
            if rest:
                self._kept |= _persisted(rest, graph, self._kept, self._options)[0]
        if inline:
            self._warn(graph.times(outputs, self._kept), len(outputs))
        self._ready = True
        return graph

    def _warn(self, times: int, n_blocks: int) -> None:
        if times > MOST_TIMES:
            warnings.warn(
                f"{' and '.join(self._arrays)}: blocks of a lazy dask array need the same intermediate results, and "
                f"these take more than the {self._most_bytes >> 20} MiB that are kept for all {n_blocks} blocks, so "
                f"that each pass over the rows computes the same chunks up to {times} times: call persist() on the "
                "array first, or write it to zarr in chunks of whole rows",
                LazyRowsWarning,
                stacklevel=2,
            )


class _Graph:
    """Tasks with their dependencies.

    Parameters
    ----------
    tasks : dict
        Tasks by key, of either form of dask.

    Attributes
    ----------
    tasks, needs : dict
        Tasks, and the keys that each of them needs.
    plain : set
        Keys whose values are in the graph.
    """

    def __init__(self, tasks: dict[Any, Any]) -> None:
        from dask.core import get_dependencies, istask

        self.tasks = tasks
        # What a cluster holds is a future that looks like a reference to its own key.
        self.needs = {key: set(get_dependencies(tasks, key)) - {key} for key in tasks}
        self._order = list(TopologicalSorter(self.needs).static_order())
        self.plain: set[Any] = set()
        for key in self._order:
            needs = self.needs[key]
            another = type(tasks[key]).__name__ == "Alias" and needs <= self.plain
            if another or not (needs or istask(tasks[key])):
                self.plain.add(key)

    def shared(self, outputs: list[list[Any]], kept: Mapping[Any, Any], inline: set[Any]) -> set[Any]:
        """Return the keys that several blocks need directly, without those of the layers `inline`."""
        owners: dict[Any, int] = {}
        shared = set()

        def own(key: Any, owner: int) -> None:
            owners[key] = owner if owners.get(key, owner) == owner else _SEVERAL

        for block, keys in enumerate(outputs):
            for key in keys:
                own(key, block)
        for key in reversed(self._order):
            if key not in owners or key in kept or key in self.plain:
                continue
            if owners[key] == _SEVERAL and _layer(key) not in inline:
                shared.add(key)
                continue
            for need in self.needs[key]:
                own(need, owners[key])
        return shared

    def first_of(self, keys: set[Any], kept: Mapping[Any, Any]) -> list[Any]:
        """Return those of some keys that need no other of them; a result is computed before what is made of it."""
        later = set()
        for key in self._order:
            if key not in kept and any(need in keys or need in later for need in self.needs[key]):
                later.add(key)
        return [key for key in self._order if key in keys and key not in later]

    def times(self, outputs: list[list[Any]], kept: Mapping[Any, Any]) -> int:
        """Return how often a pass over the blocks computes the task that most of them need."""
        blocks: dict[Any, int] = defaultdict(int)
        for block, keys in enumerate(outputs):
            for key in keys:
                blocks[key] |= 1 << block
        most = 1
        for key in reversed(self._order):
            if blocks[key] and key not in kept and key not in self.plain:
                most = max(most, blocks[key].bit_count())
                for need in self.needs[key]:
                    blocks[need] |= blocks[key]
        return most

    def needed(self, keys: Iterable[Any], kept: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the tasks that some keys need, with the values that are kept."""
        found: dict[Any, Any] = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key in found:
                continue
            if key in kept:
                found[key] = kept[key]
                continue
            found[key] = self.tasks[key]
            waiting.extend(self.needs[key])
        return found


def _layer(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) else key


def _delayed(keys: Sequence[Any], graph: _Graph, kept: Mapping[Any, Any]) -> list[Any]:
    from dask.delayed import Delayed

    tasks = graph.needed(keys, kept)
    return [Delayed(key, tasks) for key in keys]


def _computed(
    keys: Sequence[Any], graph: _Graph, kept: Mapping[Any, Any], options: Mapping[str, Any]
) -> tuple[Any, ...]:
    import dask

    values: tuple[Any, ...] = dask.compute(*_delayed(keys, graph, kept), optimize_graph=False, **options)
    return values


def _persisted(
    keys: Sequence[Any], graph: _Graph, kept: Mapping[Any, Any], options: Mapping[str, Any]
) -> tuple[dict[Any, Any], dict[Any, int]]:
    """Compute results and leave them where dask keeps them; return their places in a graph, and their bytes."""
    import dask
    from dask.sizeof import sizeof

    held = dask.persist(*_delayed(keys, graph, kept), optimize_graph=False, **options)
    sizes = dask.compute(*(dask.delayed(sizeof)(value) for value in held), **options)
    places = {}
    for key, one in zip(keys, held, strict=True):
        value = dict(one.__dask_graph__())[key]
        if not hasattr(value, "client"):
            # A future of a cluster stands for itself; a value could be taken for a task, unless dask makes the node.
            value = dict(dask.delayed(value, name=key, traverse=False).__dask_graph__())[key]
        places[key] = value
    return places, dict(zip(keys, map(int, sizes), strict=True))
