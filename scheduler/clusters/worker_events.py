"""Events of workers that join and leave, without polling.

The scheduler logs both under the topic "all". A client has one handler for each topic. So all trainings of a client
share one handler here, which also calls the handler that was set before it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

Listener = Callable[[str, str, bool], None]
"""Called with ("add-worker" or "remove-worker", address, whether it was requested) on the client's event loop: must not
block."""

TOPIC = "all"

_watches: weakref.WeakKeyDictionary[Any, WorkerWatch] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class WorkerWatch:
    """Listeners of one client."""

    def __init__(self, client: Any) -> None:
        self._listeners: list[Listener] = []
        self._previous = client._event_handlers.get(TOPIC)
        if isinstance(getattr(self._previous, "__self__", None), WorkerWatch):
            # dask keeps the handler of a topic after unsubscribing.
            self._previous = None
        client.subscribe_topic(TOPIC, self._handle)

    @classmethod
    def listen(cls, client: Any, listener: Listener) -> None:
        """Add a listener of the workers of `client`."""
        with _lock:
            if client not in _watches:
                _watches[client] = cls(client)
            _watches[client]._listeners.append(listener)

    @classmethod
    def stop(cls, client: Any, listener: Listener) -> None:
        """Remove a listener; after the last one, restore the handler of the topic."""
        with _lock:
            watch = _watches.get(client)
            if watch is None or listener not in watch._listeners:
                return
            watch._listeners.remove(listener)
            if watch._listeners or client.status != "running":
                return
            del _watches[client]
            if watch._previous is None:
                client.unsubscribe_topic(TOPIC)
            else:
                client.subscribe_topic(TOPIC, watch._previous)

    def _handle(self, event: Any) -> Any:
        message = event[1]
        action, worker = message.get("action"), message.get("worker")
        if action in ("add-worker", "remove-worker") and worker is not None:
            for listener in tuple(self._listeners):
                listener(action, worker, bool(message.get("expected", True)))
        return None if self._previous is None else self._previous(event)
