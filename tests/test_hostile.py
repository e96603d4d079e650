"""Requests that try to end or stall the engine, against the real one behind the local server, while others are served.

Each is refused by name or harmless; a stream that runs beside them all goes on, and the engine's process is the same
afterwards. schemathesis then tries what the server's own document leads it to.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lmi.model.demo_model import question

from .endpoints import Server, engine_process, model_directory
from .scripts import run_client

pytestmark = pytest.mark.engine

FOREIGN = 'import pathlib\npathlib.Path(__file__).with_name("executed").touch()\n'


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A short context, so that whatever is asked for ends soon; and a model that brings code of its own."""
    folder = tmp_path_factory.mktemp("hostile")
    properties = {"option.tool_call_parser": "hermes", "option.max_model_len": "256"}
    model = model_directory(demo_model, folder / "model", properties)
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "foreign.Config", "AutoModelForCausalLM": "foreign.Model"}
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    (model / "foreign.py").write_text(FOREIGN)
    running = Server(model, folder / "log")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


ASK = [{"role": "user", "content": "Hello"}]
Case = tuple[str, dict[str, Any]]


def chat(**fields: Any) -> Case:
    return "/v1/chat/completions", {"messages": ASK, "max_tokens": 20, **fields}


def text(**fields: Any) -> Case:
    return "/v1/completions", {"prompt": "Hello", "max_tokens": 20, **fields}


def tool(parameters: Any, name: str = "a") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def schema(given: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": given}}}


def forced(parameters: Any) -> Case:
    return chat(tools=[tool({"type": "object"}), tool(parameters, "b")], tool_choice="required")


def kwargs(**arguments: Any) -> Case:
    return chat(chat_template_kwargs=arguments)


LARGEST = 2**31 - 1


def nested(depth: int) -> Any:
    """A schema of objects in objects, each of which is two levels of JSON."""
    made: Any = {"type": "integer"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}}
    return made


LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}

RECURSIVE = {"$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}

REFUSED: dict[str, tuple[Case, str]] = {
    # vLLM notes, Safety: one such request could end the engine of 0.23.
    "empty json": (text(structured_outputs={"json": ""}), "structured_outputs.json"),
    "empty guided json": (text(guided_json=""), "guided_json"),
    "blank json": (text(guided_json=" \n"), "guided_json"),
    "no schema": (chat(**schema({})), "response_format.json_schema.schema"),
    "json_object false": (text(structured_outputs={"json_object": False}), "structured_outputs.json_object"),
    "broken grammar": (text(guided_grammar="root ::= ("), "guided_grammar"),
    "broken lark": (text(guided_grammar='start: "a'), "guided_grammar"),
    "empty grammar": (text(structured_outputs={"grammar": ""}), "structured_outputs.grammar"),
    "no root": (text(guided_grammar='a ::= "b"'), "guided_grammar"),
    "broken regex": (text(guided_regex="["), "guided_regex"),
    "empty regex": (text(guided_regex=""), "guided_regex"),
    "empty choice": (text(guided_choice=[]), "guided_choice"),
    "empty choices": (text(guided_choice=[""]), "guided_choice[0]"),
    "wrong type": (chat(**schema({"type": 5})), "response_format.json_schema.schema"),
    "no reference": (chat(**schema({"$ref": "#/nothing"})), "response_format.json_schema.schema"),
    "structural tag": (chat(response_format={"type": "structural_tag", "format": {}}), "response_format.type"),
    "tool's schema": (forced({"type": "nonsense"}), "tools[1].function.parameters"),
    # What would never end, or take all the memory or the stack.
    "counts": (text(guided_regex="((a{1,100}){1,100}){1,100}"), "guided_regex"),
    "repeated nothing": (text(guided_regex="(a*)*b"), "guided_regex"),
    "counts of rules": (text(guided_grammar='root ::= x{1,99}\nx ::= y{1,99}\ny ::= "a"{1,99}'), "guided_grammar"),
    "parentheses": (text(guided_regex="(" * 100_000 + "a" + ")" * 100_000), "guided_regex"),
    "parentheses in a grammar": (text(guided_grammar="root ::= " + "(" * 9_000 + '"a"' + ")" * 9_000),
                                 "guided_grammar"),
    "parentheses in a schema": (text(guided_json={"type": "string", "pattern": "(" * 30_000 + "a" + ")" * 30_000}),
                                "guided_json"),
    "counts in a schema": (chat(**schema({"items": {"pattern": "((a{99}){99}){99}"}})),
                           "response_format.json_schema.schema"),
    "counts in a tool": (forced({"properties": {"a": {"pattern": "((a{99}){99}){99}"}}}),
                         "tools[1].function.parameters"),
    "many properties": (text(guided_json={"properties": {f"p{number}": {} for number in range(5_000)}}), "guided_json"),
    "many values": (text(guided_json={"enum": [*range(20_000)]}), "guided_json"),
    "deep schema": (text(guided_json=nested(60)), "guided_json"),
    "huge number": (text(guided_json={"maximum": 2**70}), "guided_json"),
    # What can be compiled and allows no text.
    "left recursion": (text(guided_grammar='root ::= root "a"'), "guided_grammar"),
    "itself": (text(guided_grammar="root ::= root"), "guided_grammar"),
    "references in a loop": (text(guided_json=LOOP), "guided_json"),
    "no character": (text(guided_regex="[^\\u0000-\\U0010ffff]"), "guided_regex"),
    "impossible range": (text(guided_json={"type": "integer", "minimum": 5, "maximum": 1}), "guided_json"),
    # Token ids.
    "stop id": (text(min_tokens=5, stop_token_ids=[LARGEST]), "stop_token_ids"),
    "stop id of the vocabulary's size": (text(min_tokens=5, stop_token_ids=[640]), "stop_token_ids"),
    "negative stop id": (text(stop_token_ids=[-1]), "stop_token_ids[0]"),
    "prompt id": (text(prompt=[LARGEST]), "prompt"),
    "negative prompt id": (text(prompt=[1, -5]), "prompt[1]"),
    "bias": (text(logit_bias={str(LARGEST): 5}), "logit_bias"),
    "negative bias": (text(logit_bias={"-1": 5}), "logit_bias.-1"),
    "allowed ids": (text(allowed_token_ids=[LARGEST]), "allowed_token_ids"),
    "logprob ids": (text(logprob_token_ids=[LARGEST]), "logprob_token_ids"),
    # Sizes.
    "n": (text(n=10**9), "n"),
    "best_of": (text(best_of=10**9), "best_of"),
    "logprobs": (text(logprobs=10**9), "logprobs"),
    "max_tokens": (chat(max_tokens=2**63 - 1), "messages"),
    "stop strings": (text(stop=["a"] * 100_000), "stop"),
    "long stop string": (text(stop=["a" * 100_000]), "stop"),
    "prompt": (text(prompt="a " * 50_000), "prompt"),
    # What is the engine's own, another tenant's, or the owner's.
    "cache_salt": (text(cache_salt="a"), "cache_salt"),
    "vllm_xargs": (text(vllm_xargs={"a": 1}), "vllm_xargs"),
    "logits processors": (text(logits_processors=["os.system"]), "logits_processors"),
    "embedded prompt": (text(prompt_embeds="AAAA"), "prompt_embeds"),
    "adapter": (text(adapters="../../etc"), "adapters"),
    "priority": (text(priority=-5), "priority"),
    "template": (chat(chat_template="{% for i in range(10**9) %}{% endfor %}"), "chat_template"),
    "template in kwargs": (kwargs(chat_template="{{ 1 }}"), "chat_template_kwargs.chat_template"),
    # 10**9 tokens of padding are more memory than there is.
    "padding": (kwargs(padding="max_length", max_length=10**9), "chat_template_kwargs.padding"),
    "conversation": (kwargs(conversation=[]), "chat_template_kwargs.conversation"),
    "tokenizer": (kwargs(tokenizer=1), "chat_template_kwargs.tokenizer"),
    "image's file": (chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]), "messages[0].content[0].type"),
}  # fmt: skip
"""What the answer must name."""

HARMLESS: dict[str, Case] = {
    "recursion": text(guided_grammar='root ::= "a" root | "b"'),
    "ambiguous": text(guided_grammar='root ::= root root | "a"', max_tokens=200),
    "large count": text(guided_regex="a{1,1000000}"),
    "large size": text(guided_json={"type": "string", "maxLength": 10**9}),
    "states": text(guided_regex="(a|b)*a(a|b){20}"),
    "deep": text(guided_json=nested(30)),
    "recursive schema": text(
        guided_json={"$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    ),
    "name of a tool": chat(tools=[tool({"type": "object"}, 'a"\n{}[]|*\\')], tool_choice="required"),
    "bad words": text(bad_words=["\x00", "😀" * 20, "a " * 1500]),
    "far seed": text(seed=2**63 - 129, n=128, max_tokens=2, temperature=1),
    "smallest numbers": text(top_p=5e-324, temperature=5e-324),
    "penalties": text(repetition_penalty=0.01, frequency_penalty=-2, temperature=2),
    "special tokens": text(prompt="<|im_end|></s>\x00" * 5),
    "odd template variables": kwargs(bos_token=5, raise_exception=1, strftime_now=2, tools_in_user_message=[]),
    "kv transfer": text(kv_transfer_params={"do_remote_prefill": True, "remote_host": "169.254.169.254"}),
    "private fields": text(extra_args={"a": 1}, _all_stop_token_ids=[LARGEST], output_kind=0, detokenize=True),
    "path as the model": text(model="../../../etc/passwd"),
}


class Beside:
    """A stream after the other while hostile requests are made: each must come, whole and unchanged."""

    def __init__(self, url: str) -> None:
        self.asked = question("long")
        self.texts: list[str] = []
        self.end = threading.Event()
        self._url = url
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        body = {"inputs": self.asked.prompt, "stream": True, "parameters": {"max_new_tokens": 200}}
        with httpx.Client(timeout=60) as client:
            while not self.end.is_set():
                answer = client.post(f"{self._url}/invocations", json=body)
                lines = [json.loads(line) for line in answer.text.splitlines()]
                self.texts.append("".join(line["token"]["text"] for line in lines))

    def stop(self) -> None:
        """Waits for the last one."""
        self.end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_hostile_requests_harm_nobody(server: Server, http: httpx.Client) -> None:
    engine = engine_process(server).pid
    beside = Beside(server.url)
    faults: list[str] = []
    try:
        for name, ((path, body), field) in REFUSED.items():
            answer = http.post(path, json=body)
            error = answer.json()["error"]
            said = (answer.status_code, error["message"].partition(":")[0])
            if said[0] != 400 or not (said[1] == field or error["param"] == field or field in error["message"]):
                faults.append(f"{name}: {answer.status_code} {error}")
            if len(answer.content) > 4096 or "\n" in error["message"]:
                faults.append(f"{name}: {len(answer.content)} bytes")
        for name, (path, body) in HARMLESS.items():
            answer = http.post(path, json=body)
            if answer.status_code != 200:
                faults.append(f"{name}: {answer.status_code} {answer.text[:300]}")
    finally:
        beside.stop()
    assert not faults, "\n".join(faults)
    assert len(beside.texts) >= 2
    assert set(beside.texts) == {beside.asked.answer}
    assert engine_process(server).pid == engine


def test_private_fields_change_nothing(http: httpx.Client) -> None:
    path, body = HARMLESS["private fields"]
    plain = http.post(path, json=text()[1]).json()["choices"]
    assert http.post(path, json=body).json()["choices"] == plain


def test_the_models_name_is_no_path(server: Server, http: httpx.Client) -> None:
    """What is asked for is not opened: the answer carries our own name."""
    path, body = HARMLESS["path as the model"]
    assert http.post(path, json=body).json()["model"] == http.get("/v1/models").json()["data"][0]["id"]
    for url in (
        "/predictions/..%2f..%2fetc%2fpasswd",
        "/predictions/a/../../etc/passwd",
        "/v1/models/../../etc/passwd",
    ):
        answer = http.post(url, json={"inputs": "Hello", "parameters": {"max_new_tokens": 2}})
        assert answer.status_code in (200, 404, 405)
        assert "root:" not in answer.text


def test_code_of_the_models_is_not_executed(server: Server) -> None:
    """`option.trust_remote_code` is not set."""
    (config,) = [path for path in server_models(server) if (path / "foreign.py").exists()]
    assert (config / "foreign.py").read_text() == FOREIGN
    assert not (config / "executed").exists()


def server_models(server: Server) -> list[Path]:
    """The model directory that the server was started with."""
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().split(b"\0")
    return [Path(os.fsdecode(one)) for one in arguments if one.endswith(b"/model")]


def exchange(url: str, request: bytes) -> bytes:
    """What a server answers to bytes as they are."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), 30) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    return answer


BODY = b'{"inputs": "Hello", "parameters": {"max_new_tokens": 2}}'


@pytest.mark.parametrize(
    "header",
    [
        b"X-Amzn-SageMaker-Custom-Attributes: dialect=lmi%0d%0aX-Evil: 1",
        b"X-Amzn-SageMaker-Custom-Attributes: dialect=\x00\r\n X-Evil: 1",
        b"X-Amzn-SageMaker-Custom-Attributes: k=\xe2\x80\xa8X-Evil: 1,dialect=\x85X-Evil: 1",
        b"X-Request-Id: a\x0bX-Evil: 1",
        b"X-Request-Id: " + b"a" * 4000,
        b"X-Request-Id: %0d%0aX-Evil:%201",
        b"azureml-model-deployment: a%0d%0aX-Evil: 1",
        b"Content-Type: application/json\x00X-Evil: 1",
        b"Accept: text/event-stream%0d%0aX-Evil: 1",
    ],
    ids=range(9),
)
@pytest.mark.parametrize(
    "path", [b"/invocations", b"/chat/completions?api-version=2024-05-01", b"/chat/sse?a=%0d%0aX-Evil:1"]
)
def test_no_header_can_be_brought_in(server: Server, header: bytes, path: bytes) -> None:
    lines = [
        b"POST " + path + b" HTTP/1.1",
        b"Host: a",
        b"Connection: close",
        b"Content-Length: %d" % len(BODY),
        header,
    ]
    answer = exchange(server.url, b"\r\n".join(lines) + b"\r\n\r\n" + BODY)
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 ")
    assert int(head.split()[1]) < 500
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert b"x-evil" not in names
    assert b"\n" not in head.replace(b"\r\n", b"")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=a", "application/x-www-form-urlencoded"])
def test_other_content_types_are_refused(http: httpx.Client, kind: str) -> None:
    """A browser sends these from any site without asking first."""
    answer = http.post("/invocations", content=BODY, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/json")


def test_schemathesis_by_the_servers_own_document(server: Server, http: httpx.Client) -> None:
    """Zero 5xx, and every answer fits what the document tells; LMI_OPENAPI_EXAMPLES makes it more than a few."""
    seen = run_client("openapi_fuzz.py", server.url, os.environ.get("LMI_OPENAPI_EXAMPLES", "3"))
    statuses = {status for counts in seen.values() for status in counts}
    assert not {status for status in statuses if status >= "500"}
    assert {"200", "400", "404", "422", "424"} <= statuses
    paths = http.get("/openapi.json").json()["paths"]
    assert set(seen) == {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
