"""Providers of the SDK that keep everything in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode

from holdfast import telemetry


class Listener:
    """What has been reported, to look at."""

    def __init__(self, *exporters: SpanExporter) -> None:
        self._kept = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.traces, self.meters = TracerProvider(), MeterProvider([self._reader])
        for exporter in (self._kept, *exporters):
            self.traces.add_span_processor(SimpleSpanProcessor(exporter))
        self.tracer = self.traces.get_tracer("of the tests")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Those that have ended, in the order in which they began."""
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)

    def find(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[str]:
        """The names of all spans, indented below their parents."""
        depths: dict[int, int] = {}
        lines = []
        for span in self.spans:
            depth = 0 if span.parent is None else depths[span.parent.span_id] + 1
            depths[id_of(span)] = depth
            lines.append("  " * depth + span.name)
        return lines

    def points(self, metric: str) -> list[tuple[Mapping[str, Any], float]]:
        """The attributes of each series of a metric, and its sum."""
        data = self._reader.get_metrics_data()
        return [
            (point.attributes or {}, point.value if isinstance(point, NumberDataPoint) else point.sum)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]


def context_of(span: ReadableSpan) -> SpanContext:
    """What others refer to it by."""
    found = span.get_span_context()
    assert found is not None
    return found


def id_of(span: ReadableSpan) -> int:
    """Its id within the trace."""
    return context_of(span).span_id


def error_of(span: ReadableSpan) -> object:
    """What a span says that went wrong; None if it says that nothing did."""
    found = dict(span.attributes or {}).get("error.type")
    assert (span.status.status_code is StatusCode.ERROR) == (found is not None), span.name
    return found


def about(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


@contextmanager
def listen(*exporters: SpanExporter) -> Iterator[Listener]:
    """As if these providers had been configured, and no provider had been looked up before."""
    listener = Listener(*exporters)
    with nobody_listens() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: listener.traces)
        patch.setattr(metrics, "get_meter_provider", lambda: listener.meters)
        yield listener


@contextmanager
def nobody_listens() -> Iterator[pytest.MonkeyPatch]:
    """As if no provider had been configured in this process yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_found", None)
        patch.setattr(telemetry, "_look_again_s", 0.0)
        patch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
        patch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
        yield patch
