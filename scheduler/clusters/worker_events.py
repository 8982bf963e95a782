"""Hearing of workers that come and go, at once.

The scheduler logs both under the topic "all". A client keeps one handler a topic, so all trainings of a client
share one here, and a handler that was there before still gets its events.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

Listener = Callable[[str, str, bool], None]
"""Called with ("add-worker" or "remove-worker", address, whether that was asked for) on the client's event loop:
must not block."""

TOPIC = "all"

_watches: weakref.WeakKeyDictionary[Any, WorkerWatch] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class WorkerWatch:
    """Listeners of one client."""

    def __init__(self, client: Any) -> None:
        self._listeners: list[Listener] = []
        self._previous = client._event_handlers.get(TOPIC)
        if isinstance(getattr(self._previous, "__self__", None), WorkerWatch):
            # dask keeps the handler of a topic that was unsubscribed.
            self._previous = None
        client.subscribe_topic(TOPIC, self._handle)

    @classmethod
    def listen(cls, client: Any, listener: Listener) -> None:
        """Start telling `listener` of the workers of `client`."""
        with _lock:
            if client not in _watches:
                _watches[client] = cls(client)
            _watches[client]._listeners.append(listener)

    @classmethod
    def stop(cls, client: Any, listener: Listener) -> None:
        """Stop telling `listener`; the last one gives the topic back."""
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
