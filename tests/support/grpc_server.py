"""A gRPC server by grpcio, Google's own library, with the health service and load reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


_FIELDS = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"cpu_utilization": 1, "mem_utilization": 2, "rps_fractional": 6, "eps": 7}
_SCALARS |= {"application_utilization": 9}
_MAPS = {"request_cost": 4, "utilization": 5, "named_metrics": 8}


def _orca_messages() -> dict[str, Any]:
    """The messages of ORCA with the fields of its .proto files (cncf/xds), as protobuf itself writes them."""
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="xds", syntax="proto3")
    file.dependency.append("google/protobuf/duration.proto")
    request = file.message_type.add(name="OrcaLoadReportRequest")
    interval = request.field.add(name="report_interval", number=1, label=_FIELDS.LABEL_OPTIONAL)
    interval.type, interval.type_name = _FIELDS.TYPE_MESSAGE, ".google.protobuf.Duration"
    report = file.message_type.add(name="OrcaLoadReport")
    for name, number in _SCALARS.items():
        report.field.add(name=name, number=number, type=_FIELDS.TYPE_DOUBLE, label=_FIELDS.LABEL_OPTIONAL)
    for name, number in _MAPS.items():
        kind = name.title().replace("_", "") + "Entry"
        entry = report.nested_type.add(name=kind)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_FIELDS.TYPE_STRING, label=_FIELDS.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=_FIELDS.TYPE_DOUBLE, label=_FIELDS.LABEL_OPTIONAL)
        entries = report.field.add(name=name, number=number, label=_FIELDS.LABEL_REPEATED)
        entries.type, entries.type_name = _FIELDS.TYPE_MESSAGE, f".xds.OrcaLoadReport.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return dict(message_factory.GetMessageClassesForFiles(["orca.proto"], pool))


_ORCA = _orca_messages()


class LoadReports:
    """The service xds.service.orca.v3.OpenRcaService: a report at once, and another after each interval.

    `report` are the fields of the next one; `intervals_s` those that were asked for.
    """

    def __init__(self) -> None:
        self.report: dict[str, Any] = {}
        self.intervals_s: list[float] = []

    def stream(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer a call until the client hangs up."""
        self.intervals_s.append(request.report_interval.ToTimedelta().total_seconds())
        while context.is_active():
            yield _ORCA["xds.OrcaLoadReport"](**self.report)
            time.sleep(self.intervals_s[-1])

    def handler(self) -> grpc.GenericRpcHandler:
        """Make what a server calls."""
        method = grpc.unary_stream_rpc_method_handler(
            self.stream,
            request_deserializer=_ORCA["xds.OrcaLoadReportRequest"].FromString,
            response_serializer=lambda report: report.SerializeToString(),
        )
        return grpc.method_handlers_generic_handler(
            "xds.service.orca.v3.OpenRcaService", {"StreamCoreMetrics": method}
        )


@dataclass
class GrpcServer:
    """The server, at `port` of 127.0.0.1."""

    port: int
    health: health.HealthServicer
    loads: LoadReports


@contextmanager
def grpc_server(
    files: dict[str, Path] | None = None, *, port: int = 0, has_services: bool = True
) -> Iterator[GrpcServer]:
    """Serve until the end of the block, over TLS with the files `crt` and `key`."""
    library = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    at = f"127.0.0.1:{port}"
    if files is None:
        port = library.add_insecure_port(at)
    else:
        pair = (files["key"].read_bytes(), files["crt"].read_bytes())
        port = library.add_secure_port(at, grpc.ssl_server_credentials([pair]))
    made = GrpcServer(port, health.HealthServicer(), LoadReports())
    if has_services:
        library.add_generic_rpc_handlers((made.loads.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(made.health, library)
    library.start()
    try:
        yield made
    finally:
        ended: threading.Event = library.stop(0)
        ended.wait(10)
