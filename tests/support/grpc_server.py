"""A gRPC server by grpcio, Google's own library, with the health service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class GrpcServer:
    """The server, at `port` of 127.0.0.1."""

    port: int
    health: health.HealthServicer


@contextmanager
def grpc_server(
    files: dict[str, Path] | None = None, *, port: int = 0, has_health: bool = True
) -> Iterator[GrpcServer]:
    """Serve until the end of the block, over TLS with the files `crt` and `key`."""
    library = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    at = f"127.0.0.1:{port}"
    if files is None:
        port = library.add_insecure_port(at)
    else:
        pair = (files["key"].read_bytes(), files["crt"].read_bytes())
        port = library.add_secure_port(at, grpc.ssl_server_credentials([pair]))
    made = GrpcServer(port, health.HealthServicer())
    if has_health:
        health_pb2_grpc.add_HealthServicer_to_server(made.health, library)
    library.start()
    try:
        yield made
    finally:
        ended: threading.Event = library.stop(0)
        ended.wait(10)
