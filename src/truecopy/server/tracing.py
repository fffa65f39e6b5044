"""A span for each request: its route and what came of it, and nothing that was sent along."""

from __future__ import annotations

from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from truecopy.server.guard import App, Message, Receive, Scope, Send


class Traced:
    """Stands before everything else, where traces are asked for."""

    def __init__(self, app: App, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        method = scope["method"]
        with self._tracer.start_as_current_span(
            method,
            TraceContextTextMapPropagator().extract(headers),
            SpanKind.SERVER,
            {"http.request.method": method},
            record_exception=False,
        ) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, watched)
            if route := getattr(scope.get("route"), "path", None):
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
