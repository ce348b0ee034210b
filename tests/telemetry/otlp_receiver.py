"""A backend for OTLP over HTTP on this machine."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Export(NamedTuple):
    """A request of an exporter."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class OtlpReceiver:
    """Keeps what exporters send to it."""

    def __init__(self) -> None:
        self.exports: list[Export] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        """The spans that have arrived, in the order in which they began."""
        found = [
            span
            for export in self.exports
            if export.path.endswith("/v1/traces")
            for resource in ExportTraceServiceRequest.FromString(export.body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def services(self) -> set[str]:
        """The services that have sent spans."""
        return {
            attribute.value.string_value
            for export in self.exports
            if export.path.endswith("/v1/traces")
            for resource in ExportTraceServiceRequest.FromString(export.body).resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics that have arrived."""
        return {
            metric.name
            for export in self.exports
            if export.path.endswith("/v1/metrics")
            for resource in ExportMetricsServiceRequest.FromString(export.body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.exports.append(Export(self.path, headers, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
