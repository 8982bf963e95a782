"""Latency between hosts: what a worker gets from the network passes a process that holds it back for a moment.

The kernel's own emulation of latency and loss (``netem``) is missing from many systems. Here every connection to a
worker, and every one of a worker to the scheduler, is accepted and opened within the namespace of the worker, and what
passes is delayed in both directions. Loss of packets cannot be simulated so: TCP connections are carried as they are.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

PIECE = 1 << 18


async def forward(routes: list[dict[str, Any]], seconds: float, ready: str) -> None:
    """Serve for ever.

    Parameters
    ----------
    routes : list of dict
        ``namespace``, and address and port to ``listen`` on and to go ``to``.
    seconds : float
        Delay of what passes.
    ready : str
        File to write once all routes are open.
    """
    servers = []
    for route in routes:
        listening = _socket_in(route["namespace"])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(tuple(route["listen"]))
        listening.listen(256)
        listening.setblocking(False)
        servers.append(
            await asyncio.start_server(
                lambda reader, writer, route=route: _connected(reader, writer, route, seconds), sock=listening
            )
        )
    Path(ready).touch()
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _socket_in(namespace: str) -> socket.socket:
    """Make a socket in a namespace, where it stays."""
    from benchmarks.cluster.processes import enter

    if namespace:
        enter(namespace)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


async def _connected(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, route: dict[str, Any], seconds: float
) -> None:
    onward = _socket_in(route["namespace"])
    onward.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(onward, tuple(route["to"]))
        other_reader, other_writer = await asyncio.open_connection(sock=onward)
    except OSError:
        writer.close()
        onward.close()
        return
    await asyncio.gather(_pipe(reader, other_writer, seconds), _pipe(other_reader, writer, seconds))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

    async def send() -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    sending = asyncio.ensure_future(send())
    with suppress(OSError):
        while data := await reader.read(PIECE):
            await held.put((loop.time() + seconds, data))
            if sending.done():
                break
    await held.put((loop.time() + seconds, b""))
    with suppress(OSError):
        await sending
    writer.close()
