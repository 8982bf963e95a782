"""An S3 server for tests: moto in a process of its own, with latency, counts of requests and faults on order.

Run as a program it prints its port and serves until it is killed; `S3Server` starts it and talks to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

CONTROL = "/-control"
BUCKET = "rows"


class Middleware:
    """Between the socket and moto: counts, waits, fails.

    Faults are dictionaries: ``key`` (a pattern), ``method``, ``times``, and ``status`` to answer with or ``cut``, the
    share of the body after which the connection breaks.
    """

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._latency = 0.0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._faults: list[dict[str, Any]] = []
        self._now = self._most = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(CONTROL):
            return self._control(environ, start_response)
        with self._lock:
            self._counts[method, path.lstrip("/")] += 1
            self._now += 1
            self._most = max(self._most, self._now)
            fault = self._strikes(method, path.lstrip("/"))
        try:
            time.sleep(self._latency)
            if fault is not None and "status" in fault:
                status, code = fault["status"], fault.get("code", "InjectedFault")
                body = f"<Error><Code>{code}</Code><Message>injected fault</Message></Error>".encode()
                start_response(f"{status} Injected", [("Content-Length", str(len(body)))])
                return [] if method == "HEAD" else [body]
            answer = self._app(environ, start_response)
            return answer if fault is None else _cut(answer, fault["cut"])
        finally:
            with self._lock:
                self._now -= 1

    def _strikes(self, method: str, key: str) -> dict[str, Any] | None:
        for fault in self._faults:
            if fault["times"] > 0 and method == fault["method"] and fnmatchcase(key, fault["key"]):
                fault["times"] -= 1
                return fault
        return None

    def _control(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        order = json.loads(environ["wsgi.input"].read(length) or b"{}")
        with self._lock:
            answer = {"counts": [[*key, n] for key, n in self._counts.items()], "most": self._most}
            if order.get("reset"):
                self._counts.clear()
                self._faults.clear()
                self._most = self._now
            self._latency = order.get("latency", self._latency)
            self._faults += order.get("faults", [])
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def _cut(answer: Any, share: float) -> Iterator[bytes]:
    body = b"".join(answer)
    yield body[: int(len(body) * share)]
    raise ConnectionAbortedError("injected fault")


def serve() -> None:
    """Serve moto's S3 on a free port of this machine."""
    from moto.server import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            pass

    app = Middleware(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(server.port, flush=True)
    # Tests that are killed must not leave a server behind.
    threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    server.serve_forever()


def _end_with_parent(server: Any) -> None:
    sys.stdin.read()
    server.shutdown()


class S3Server:
    """A running server, seen from the test."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead clients here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def order(self, **what: Any) -> dict[str, Any]:
        """Change latency or faults, or reset counts; return the counts before."""
        request = urllib.request.Request(self.endpoint + CONTROL, data=json.dumps(what).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.loads(answer.read()))

    def reset(self, latency: float = 0.0) -> None:
        """Forget counts and faults."""
        self.order(reset=True, latency=latency)

    def fail(self, key: str, *, method: str = "GET", times: int = 1, **how: Any) -> None:
        """Have requests for matching keys fail: ``status=503``, or ``cut=0.5`` for half a body."""
        self.order(faults=[{"key": f"{BUCKET}/{key}".rstrip("/"), "method": method, "times": times, **how}])

    def counts(self, method: str = "GET") -> dict[str, int]:
        """Requests by key since the last reset."""
        found = self.order()["counts"]
        return {path.removeprefix(f"{BUCKET}/"): n for verb, path, n in found if verb == method}

    @property
    def most_at_once(self) -> int:
        """Most requests that were under way at the same time."""
        return int(self.order()["most"])

    def put(self, path: str, body: bytes = b"") -> None:
        """Put an object, or make a bucket."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=body, method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    def upload(self, folder: Path, name: str) -> str:
        """Copy a folder into the bucket and return its URL."""
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(f"{BUCKET}/{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"s3://{BUCKET}/{name}"

    def chunk_reads(self, name: str) -> dict[str, int]:
        """Reads of each chunk of the arrays under a name since the last reset."""
        return {key: n for key, n in self.counts().items() if key.startswith(f"{name}/") and _is_chunk(key)}


def _is_chunk(key: str) -> bool:
    last = key.rpartition("/")[2]
    return last != "zarr.json" and not last.startswith(".z") and last != "model.json"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server with an empty bucket, and end it."""
    # A process of its own: its threads would slow down, and be slowed down by, those under test.
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = S3Server(int(process.stdout.readline()))
        server.put(BUCKET)
        yield server
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                stream.close()


@contextmanager
def leading_to(server: S3Server) -> Iterator[None]:
    """Set the environment for clients of a server."""
    before = dict(os.environ)
    os.environ.update(server.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    serve()
