"""Traces for OpenTelemetry: spans, their ids, and how they are exported.

Nothing of OpenTelemetry is imported before the first span is exported. Its standard variables say where to
(`OTEL_EXPORTER_OTLP_ENDPOINT`, …); without them nothing is traced.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
MAX_SPANS_PER_EXPORT = 1000


class TraceContext(NamedTuple):
    """Ids of a span in hexadecimal digits, as the header `traceparent` has them."""

    trace: str
    span: str
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"

    def at(self, *name: object) -> "TraceContext":
        """Return the context of a span of the same trace whose id is derived from `name`, so that it is the same on
        each call."""
        return TraceContext(self.trace, derive_id(16, *name), self.sampled)


class Span(NamedTuple):
    """A finished span. `error`: the code of its failure, or empty."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    begins: datetime
    ends: datetime
    attributes: Mapping[str, Any]
    error: str = ""


def derive_id(digits: int, *name: object) -> str:
    """Return hexadecimal digits that are derived from the name, and not all zero."""
    found = hashlib.sha256("\0".join(map(str, name)).encode()).hexdigest()[:digits]
    return found if found.strip("0") else "1" * digits


def parse_traceparent(header: str) -> TraceContext | None:
    """Return the context in a `traceparent` header (W3C Trace Context), or None if it is invalid."""
    found = _TRACEPARENT.fullmatch(header.strip().lower())
    if not found:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not span.strip("0"):
        return None
    return TraceContext(trace, span, sampled=bool(int(flags, 16) & 1))


def export_spans(spans: Sequence[Span]) -> bool:
    """Export the spans, within OTEL_EXPORTER_OTLP_TIMEOUT (10 s). Returns False if not all were accepted."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    told = [_to_readable_span(span) for span in spans]
    parts = (told[at : at + MAX_SPANS_PER_EXPORT] for at in range(0, len(told), MAX_SPANS_PER_EXPORT))
    return all(_get_exporter().export(part) is SpanExportResult.SUCCESS for part in parts)


@cache
def _get_exporter() -> "OTLPSpanExporter":
    import logging

    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # who sends says what failed, once
    return OTLPSpanExporter()


@cache
def _make_resource() -> "Resource":
    """Return the resource; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence."""
    import os

    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    found = Resource.create()
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return found if named else found.merge(Resource({SERVICE_NAME: "fermi"}))


def _to_readable_span(span: Span) -> "ReadableSpan":
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def there(context: TraceContext, *, remote: bool) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
        return SpanContext(int(context.trace, 16), int(context.span, 16), remote, flags)

    return ReadableSpan(
        span.name,
        context=there(span.context, remote=False),
        parent=there(span.parent, remote=True) if span.parent else None,
        resource=_make_resource(),
        attributes=span.attributes,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=_to_nanoseconds(span.begins),
        end_time=_to_nanoseconds(max(span.begins, span.ends)),
        instrumentation_scope=InstrumentationScope("fermi"),
    )


def _to_nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6) * 1000
