"""Another model as hint writer, against a service on this machine."""

import asyncio
import http.server
import json
import threading

import pytest

from spade_jax import config
from spade_jax.selfplay import endpoint, hints
from spade_jax.selfplay.state import Environment, Sample


class Service(http.server.BaseHTTPRequestHandler):
    """Fails as often as ``failures`` says, then answers with the model's name."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers["Authorization"], body))
        failed = len(self.server.seen) <= self.server.failures
        choice = {"finish_reason": "stop", "message": {"content": f" From {body['model']}. "}}
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(503 if failed else 200)
        self.end_headers()
        self.wfile.write(b"busy" if failed else answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("SPADE_HINT_API_KEY", "secret")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.seen, server.failures = [], 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("failures", "hint", "calls"), [(0, "From m.", 1), (2, "From m.", 3), (9, None, 3)]
)
def test_an_endpoint_is_asked_and_asked_again(renderer, service, failures, hint, calls):
    service.failures = failures
    settings = config.Config(
        hints=config.Hints(
            author="endpoint",
            endpoint=f"http://127.0.0.1:{service.server_port}/v1",
            endpoint_model="m",
            max_tokens=200,
            words=50,
        )
    )
    source = "class AEnv:\n    pass\n"
    asked = Environment("a", "a", "Optimization", 0, 0, source, "", [], Sample([], [], []))
    found, tokens = asyncio.run(hints.write_hints([asked], {}, None, renderer, settings))
    assert (found[0].hint, tokens, len(service.seen)) == (hint, 0, calls)
    path, key, body = service.seen[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer secret")
    assert (body["temperature"], body["max_tokens"]) == (0.3, 200)
    assert "fewer than 50 words" in body["messages"][-1]["content"]


def test_an_endpoint_out_of_reach_is_a_failed_hint(service):
    settings = config.Hints(endpoint="http://127.0.0.1:9/v1", endpoint_model="m")
    assert endpoint.ask([{"role": "user", "content": "x"}], settings) == ""
