"""Network namespaces that stand in for machines: each has one address, and a switch joins them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NETWORK = "10.213.7"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def not_permitted() -> str | None:
    """Why there can be no namespaces here, None if there can."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"distkern-probe-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "switch", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    return None


@dataclass
class Host:
    """A namespace, or this machine where it has none; the first of a network is where its switch is, too."""

    namespace: str
    address: str

    def command(self, *command: object) -> list[str]:
        """The command that runs one there."""
        enter = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        return [*enter, *(str(part) for part in command)]

    def unplug(self) -> None:
        """Take it off the network: nothing arrives, and nothing says so."""
        ip("-n", self.namespace, "link", "set", "cable", "down")

    def plug_in(self) -> None:
        """Put it back on the network."""
        ip("-n", self.namespace, "link", "set", "cable", "up")

    def limit_bandwidth(self, rate: str) -> None:
        """Limit what it sends, for example to ``100mbit`` a second."""
        command = [
            "tc",
            "qdisc",
            "add",
            "dev",
            "cable",
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "256k",
            "latency",
            "50ms",
        ]
        subprocess.run(self.command(*command), check=True, capture_output=True)

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that it received and sent so far."""
        shown = subprocess.run(
            ["ip", "-n", self.namespace, "-s", "-j", "link", "show", "cable"],
            check=True,
            capture_output=True,
            text=True,
        )
        counts = json.loads(shown.stdout)[0]["stats64"]
        return int(counts["rx"]["bytes"]), int(counts["tx"]["bytes"])


@contextmanager
def network(n_hosts: int) -> Iterator[list[Host]]:
    """Make a network of that many hosts, none of which the machine itself can reach."""
    hosts = [Host(f"distkern-{os.getpid()}-{n}", f"{NETWORK}.{n + 1}") for n in range(n_hosts)]
    first = hosts[0].namespace
    try:
        for host in hosts:
            ip("netns", "add", host.namespace)
            ip("-n", host.namespace, "link", "set", "lo", "up")
        ip("-n", first, "link", "add", "switch", "type", "bridge")
        ip("-n", first, "address", "add", f"{hosts[0].address}/24", "dev", "switch")
        ip("-n", first, "link", "set", "switch", "up")
        for number, host in enumerate(hosts[1:]):
            ip("-n", first, "link", "add", f"port{number}", "type", "veth", "peer", "cable", "netns", host.namespace)
            ip("-n", first, "link", "set", f"port{number}", "master", "switch", "up")
            ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "cable")
            ip("-n", host.namespace, "link", "set", "cable", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.namespace], check=False, capture_output=True)
