"""Traces by OpenTelemetry, where its own variables say where to send them; elsewhere nothing is loaded or done.

A span has a name, the task's name and how it ended. What failed is told by the kind of its error alone: a message may
quote what is nobody else's business. A process that another one of ours has started goes on with the trace that it
finds in its environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Tracer

PARENT = "TRACEPARENT"
"""The variable that carries a trace from process to process."""
_WHERE_TO = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_log = logging.getLogger("truecopy.telemetry")
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


@cache
def tracer() -> Tracer | None:
    """What makes spans; None where nobody asked for them."""
    if not any(os.environ.get(name) for name in _WHERE_TO) or _is_switched_off():
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning("traces are asked for and not sent: pip install 'truecopy[telemetry]'")
        return None
    ours = {"service.name": "truecopy", "service.version": version("truecopy")}
    provider = TracerProvider(resource=Resource.create(ours).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("truecopy")


@contextmanager
def span(name: str, **attributes: str) -> Iterator[None]:
    """A part of the work, inside the one that is under way in this thread."""
    with _begun(name, attributes, _parent()):
        yield


def apart(name: str, work: Callable[_Given, _Found], **attributes: str) -> Callable[_Given, _Found]:
    """Work of which each call is a trace of its own, linked to the span that is under way now.

    What goes on for months would else be one trace that nobody could look at.
    """
    if tracer() is None:
        return work
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, get_current_span

    links = [Link(get_current_span().get_span_context())]

    @wraps(work)
    def traced(*given: _Given.args, **named: _Given.kwargs) -> _Found:
        with _begun(name, attributes, Context(), links):
            return work(*given, **named)

    return traced


class Steps(ExitStack):
    """Spans one after the other: each ends where the next one begins, the last with the block."""

    def __init__(self, **attributes: str) -> None:
        super().__init__()
        self._attributes = attributes

    def enter(self, name: str) -> None:
        self.close()
        self.enter_context(span(name, **self._attributes))


def traceparent() -> str:
    """The span that is under way, for `PARENT` of another process; empty where there is none."""
    if tracer() is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: MutableMapping[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def _begun(
    name: str,
    attributes: MutableMapping[str, str],
    parent: Context | None,
    links: list[Link] | None = None,
) -> Iterator[None]:
    found = tracer()
    if found is None:
        yield
        return
    from opentelemetry.trace import StatusCode

    told = {f"truecopy.{key}": value for key, value in attributes.items()}
    with found.start_as_current_span(
        name,
        parent,
        attributes=told,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        try:
            yield
        except BaseException as error:
            begun.set_attribute("error.type", type(error).__qualname__)
            begun.set_status(StatusCode.ERROR)
            raise


def _parent() -> Context | None:
    """Outside of any span, the one that another process left in the environment."""
    if tracer() is None or PARENT not in os.environ:
        return None
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if get_current_span().get_span_context().is_valid:
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": os.environ[PARENT]})


def _is_switched_off() -> bool:
    asked = os.environ.get
    return (
        asked("OTEL_SDK_DISABLED", "").lower() == "true"
        or asked("OTEL_TRACES_EXPORTER", "otlp").lower() == "none"
    )
