"""vLLM's spans of requests, as a collector gets them of a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from ....demo.model import question
from ....kit.djl import hosting
from ....kit.hosts.host import Host, Server, djl_host, model_directory

pytestmark = pytest.mark.engine

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """An OTLP endpoint, over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        spans = self.spans

        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = ExportTraceServiceRequest()
                sent.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
                for resource in sent.resource_spans:
                    spans.extend(span for scope in resource.scope_spans for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def of_requests(self, count: int) -> list[Any]:
        """The spans of requests, but for those that are tried at start, once there are so many."""
        deadline = time.monotonic() + 60
        while len(found := [span for span in self.spans if is_request(span)]) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def is_request(span: Any) -> bool:
    return bool(attributes(span).get("gen_ai.request.id", "start") != "start")


def conventions() -> set[str]:
    """OpenTelemetry's own list."""
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    names = {name: value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    return {value for value in names.values() if isinstance(value, str)}


VLLMS = {"gen_ai.request.id", "gen_ai.request.n", "gen_ai.latency.e2e"}

NO_DJL = hosting.available()
DJL = [pytest.mark.djl, pytest.mark.hosts, pytest.mark.skipif(NO_DJL is not None, reason=str(NO_DJL))]


@pytest.mark.parametrize("kind", ["server", *(pytest.param(mode, marks=DJL) for mode in ("rolling", "async"))])
def test_a_request_becomes_a_span_of_its_clients_trace(
    demo_model: Path, tmp_path: Path, collector: Collector, kind: str
) -> None:
    directory = model_directory(demo_model, tmp_path / "model", {"option.otlp_traces_endpoint": collector.url})
    variables = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    server: Host = (
        Server(directory, tmp_path / "log", environment=variables)
        if kind == "server"
        else djl_host(directory, tmp_path / "log", mode=kind, environment=variables)
    )
    body = {"inputs": question("plain").prompt, "parameters": {"max_new_tokens": 5, "temperature": 0.5}}
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    try:
        for sent in (headers, {}):
            assert httpx.post(f"{server.url}/invocations", json=body, headers=sent, timeout=60).status_code == 200
        spans = collector.of_requests(2)
    finally:
        server.stop()
    (span,) = [span for span in spans if attributes(span)["gen_ai.request.id"] == "mine"]
    told = attributes(span)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.name == f"text_completion {told['gen_ai.request.model']}"
    assert told["gen_ai.usage.completion_tokens"] == told["gen_ai.request.max_tokens"] == 5
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.usage.input_tokens"] == told["gen_ai.usage.prompt_tokens"] > 1
    assert [one.string_value for one in told["gen_ai.response.finish_reasons"].values] == ["length"]
    assert {name for name in told if name not in conventions()} == VLLMS
    assert told["gen_ai.request.temperature"] == 0.5
    assert 0 < told["gen_ai.latency.e2e"] < 60
    assert span.start_time_unix_nano < span.end_time_unix_nano
    assert [other.trace_id.hex() == TRACE for other in spans].count(True) == 1
