"""An account of AWS's, as boto3 sees one: its clients have botocore's Stubber, which knows the services' models.

    Step      a call that is expected, in order for each service, and what it is answered
    Account   what a script gets in the place of boto3.Session; `calls` is what it did, of all services in one order

It imports nothing of the project: scripts in the clients' environment use it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.stub import Stubber

RUNTIME = "sagemaker-runtime"


@dataclass(frozen=True)
class Step:
    """A call of `service.operation`: its answer, or the code and the words of its error."""

    call: str
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: tuple[str, str] | None = None
    undo: tuple[str, Mapping[str, Any]] | None = None
    """What deletes what it makes: a call, and its arguments."""

    def failing(self) -> Step:
        return Step(self.call, error=("AccessDeniedException", f"not allowed: {self.call}"))


def undone(step: Step) -> list[Step]:
    """The calls that undo a step. What takes its time to be gone is described until it is."""
    if step.undo is None:
        return []
    call, named = step.undo
    steps = [Step(call, undo=(call, named))]
    kind = call.rpartition(".delete_")[2]
    gone = ("ValidationException", f"Could not find {kind} {named}.")
    if kind == "endpoint":
        steps += [
            Step("sagemaker.describe_endpoint", endpoint("Deleting")),
            Step("sagemaker.describe_endpoint", error=gone),
        ]
    elif kind == "inference_component":
        described = "sagemaker.describe_inference_component"
        steps += [Step(described, component("Deleting")), Step(described, error=gone)]
    return steps


def endpoint(status: str, config: str = "c", reason: str = "") -> dict[str, Any]:
    """A description of an endpoint."""
    named = {"EndpointName": "e", "EndpointArn": "arn:aws:sagemaker:us-east-1:111122223333:endpoint/e"}
    more = {"FailureReason": reason} if reason else {}
    times = {"CreationTime": 0, "LastModifiedTime": 0}
    return {**named, **times, "EndpointConfigName": config, "EndpointStatus": status, **more}


def component(status: str, reason: str = "") -> dict[str, Any]:
    """A description of an inference component."""
    arn = "arn:aws:sagemaker:us-east-1:111122223333:"
    named = {"InferenceComponentName": "i", "InferenceComponentArn": f"{arn}inference-component/i"}
    of = {"EndpointName": "e", "EndpointArn": f"{arn}endpoint/e", "CreationTime": 0, "LastModifiedTime": 0}
    more = {"FailureReason": reason} if reason else {}
    return {**named, **of, "InferenceComponentStatus": status, **more}


class Account:
    """`session` stands for boto3.Session. A call without a step, or in another order than its service's steps, fails.

    runtime_url: where requests to endpoints go, a Bridge's; without it they are steps as well.
    """

    def __init__(self, steps: Sequence[Step], runtime_url: str = "") -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._steps = steps
        self._url = runtime_url
        self._stubbers: list[Stubber] = []

    def session(self, region_name: str | None = None) -> boto3.Session:
        return _Session(self, region_name or "us-east-1")

    def prepare(self, service: str, make: Callable[..., Any]) -> Any:
        """A client for a session."""
        if service == RUNTIME and self._url:
            client = make(service, endpoint_url=self._url, config=Config(retries={"total_max_attempts": 1}, proxies={}))
        else:
            client = make(service)
            stubber = Stubber(client)
            for step in self._steps:
                of, _, operation = step.call.partition(".")
                if of == service and step.error:
                    code, words = step.error
                    stubber.add_client_error(operation, code, words)
                elif of == service:
                    stubber.add_response(operation, dict(step.answer))
            stubber.activate()
            self._stubbers.append(stubber)

        def note(params: dict[str, Any], model: Any, **_: Any) -> None:
            read = {"Body": params["Body"].read()} if hasattr(params.get("Body"), "read") else {}
            self.calls.append((f"{service}.{model.name}", {**params, **read}))

        client.meta.events.register("provide-client-params.*.*", note)
        return client

    def done(self) -> None:
        """Fails where a step was not taken."""
        for stubber in self._stubbers:
            stubber.assert_no_pending_responses()


class _Session(boto3.Session):  # type: ignore[misc]
    def __init__(self, account: Account, region: str) -> None:
        super().__init__(aws_access_key_id="none", aws_secret_access_key="none", region_name=region)
        self._account = account
        self._prepared: dict[str, Any] = {}

    def client(self, service_name: str, *_: Any, **_more: Any) -> Any:
        if service_name not in self._prepared:
            self._prepared[service_name] = self._account.prepare(service_name, super().client)
        return self._prepared[service_name]
