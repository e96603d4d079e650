"""schemathesis against a local server, by its own /openapi.json, which openapi-spec-validator reads too.

    openapi_fuzz.py URL EXAMPLES

For each operation it makes requests that fit the document and requests that break it in one place, headers and queries
included. Every answer must have a status and a content type that the document tells, no 5xx at all, and each of its
records (a body, a JSON line, the data of an event) must fit the schema that is told of it. What breaks the document
must be refused.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import hypothesis
import jsonschema
import requests
import schemathesis
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
]
SLOW = [
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
    hypothesis.HealthCheck.filter_too_much,
    hypothesis.HealthCheck.large_base_example,
]
EVENTS = "text/event-stream"


def records(kind: str, body: str) -> list[Any]:
    """What an answer consists of."""
    if kind == EVENTS:
        events = [event.split("\n") for event in body.split("\n\n") if event]
        data = [line.removeprefix("data: ") for event in events for line in event if line.startswith("data: ")]
        assert len(data) == len(events), f"an event without data, or with more: {body[:400]!r}"
        return [json.loads(one) for one in data if one not in ("[DONE]", "[END]")]
    if kind == "application/json":
        try:
            return [json.loads(body)]
        except ValueError:
            pass
    return [json.loads(line) for line in body.split("\n") if line]


def conforms(document: dict[str, Any], operation: dict[str, Any], response: Any) -> None:
    """Fails unless each record fits the schema of its status and content type."""
    told = operation["responses"]
    media = told.get(str(response.status_code)) or told[f"{response.status_code // 100}XX"]
    kind = response.headers["content-type"][0].partition(";")[0]
    content = media["content"][kind]
    if kind == "text/plain":
        return
    schema = {**content.get("x-itemSchema", content["schema"]), "components": document["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    for record in records(kind, response.content.decode()):
        validator.validate(record)


def attempting(url: str, document: dict[str, Any], told: dict[str, Any], counts: Counter[str]) -> Any:
    """A test of one operation."""

    # Where errors are events they have status 200.
    expected = [*CHECKS, checks.negative_data_rejection] if "4XX" in told["responses"] else CHECKS

    def attempt(case: Any) -> None:
        response = case.call(base_url=url, timeout=120)
        counts[str(response.status_code)] += 1
        case.validate_response(response, checks=expected)
        conforms(document, told, response)

    return attempt


def main() -> None:
    """Prints how many requests got which status, by operation."""
    url, examples = sys.argv[1], int(sys.argv[2])
    document = requests.get(f"{url}/openapi.json", timeout=30).json()
    validate(document)
    load_all_checks()
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}})
    schema = schemathesis.openapi.from_dict(document, config=config)
    seen: dict[str, Counter[str]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        told = document["paths"][operation.path][operation.method]
        counts = seen.setdefault(f"{operation.method.upper()} {operation.path}", Counter())

        modes = [GenerationMode.POSITIVE]
        if operation.body or len(operation.query):
            # Otherwise nothing can be wrong with a request.
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:
            attempt = attempting(url, document, told, counts)
            tried = hypothesis.given(case=operation.as_strategy(generation_mode=mode))(attempt)
            hypothesis.settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=SLOW,
                phases=(hypothesis.Phase.generate,),
            )(tried)()
    print(json.dumps(seen))


main()
