"""docs/sagemaker/: the scripts as they stand, on an account of botocore's Stubber.

Each is run to its end, and once for each call that may fail: then what was made before is deleted, newest first, and
nothing else.
"""

from __future__ import annotations

import json
import runpy
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from ..kit.clients.account import Account, Step, component, endpoint, undone
from ..kit.clients.endpoint import answering_endpoint
from ..kit.hosts.host import directory_without_model
from ..kit.paths import DOCS
from ..kit.rows import each_row

SCRIPTS = DOCS / "sagemaker"
ARN = "arn:aws:sagemaker:us-east-1:111122223333:"
ROLE = "arn:aws:iam::111122223333:role/SageMaker"
NAME = "demo"
MODEL = ["--name", NAME, "--role", ROLE, "--image", "registry/lmi:1", "--instance-type", "ml.g6.xlarge"]
DATA = ["--model-data", "s3://b/model.tar.gz"]


def delete(kind: str, **named: Any) -> tuple[str, dict[str, Any]]:
    return f"sagemaker.delete_{kind}", named


MAKE_MODEL = Step("sagemaker.create_model", {"ModelArn": f"{ARN}model/m"}, undo=delete("model", ModelName=NAME))
MAKE_CONFIG = Step(
    "sagemaker.create_endpoint_config",
    {"EndpointConfigArn": f"{ARN}endpoint-config/c"},
    undo=delete("endpoint_config", EndpointConfigName=NAME),
)
MAKE_ENDPOINT = Step(
    "sagemaker.create_endpoint", {"EndpointArn": f"{ARN}endpoint/e"}, undo=delete("endpoint", EndpointName=NAME)
)
STARTING = Step("sagemaker.describe_endpoint", endpoint("Creating"))
STARTED = Step("sagemaker.describe_endpoint", endpoint("InService"))
ENDPOINT = [MAKE_MODEL, MAKE_CONFIG, MAKE_ENDPOINT, STARTING, STARTED]


def make_component(name: str) -> list[Step]:
    made = {"InferenceComponentArn": f"{ARN}inference-component/i"}
    undo = delete("inference_component", InferenceComponentName=name)
    described = [Step("sagemaker.describe_inference_component", component(said)) for said in ("Creating", "InService")]
    return [Step("sagemaker.create_inference_component", made, undo=undo), *described]


def object_of(content: bytes) -> dict[str, Any]:
    return {"Body": StreamingBody(BytesIO(content), len(content))}


def put(key: str) -> Step:
    return Step("s3.put_object", undo=("s3.delete_object", {"Bucket": "b", "Key": key}))


NOTHING_YET = Step("s3.get_object", error=("NoSuchKey", "there is none"))
ASKED = Step(
    "sagemaker-runtime.invoke_endpoint_async",
    {"InferenceId": "1", "OutputLocation": "s3://b/a/answers/1.out", "FailureLocation": "s3://b/a/failures/1.out"},
)

ANSWERED = Step("s3.get_object", object_of(b'{"done": 1}'))
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": f"endpoint/{NAME}/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
NOT_SCALED = Step("application-autoscaling.describe_scalable_targets", {"ScalableTargets": []})
SCALED = Step(
    "application-autoscaling.register_scalable_target",
    undo=("application-autoscaling.deregister_scalable_target", TARGET),
)
POLICY = Step("application-autoscaling.put_scaling_policy", {"PolicyARN": "arn:aws:autoscaling:us-east-1:1:policy"})
ALARM = Step("cloudwatch.put_metric_alarm", undo=("cloudwatch.delete_alarms", {"AlarmNames": [f"{NAME}-from-none"]}))

PLANS = {
    "deploy_boto3": ("deploy_boto3.py", [*MODEL, *DATA], ENDPOINT),
    "asynchronous": (
        "deploy_boto3.py",
        [*MODEL, *DATA, "--async-output", "s3://b/a"],
        [*ENDPOINT, put(f"a/requests/{NAME}.json"), ASKED, NOTHING_YET, NOTHING_YET, ANSWERED],
    ),
    "adapters": (
        "adapters.py",
        [*MODEL, *DATA, "--devices", "4", "--adapter", "en=s3://b/en.tar.gz", "--adapter", "fr=s3://b/fr.tar.gz"],
        [*ENDPOINT, *make_component(f"{NAME}-base"), *make_component(f"{NAME}-en"), *make_component(f"{NAME}-fr")],
    ),
    "scaling of none": (
        "scaling.py",
        [NAME, "--backlog", "--min", "0", "--max", "4"],
        [NOT_SCALED, SCALED, POLICY, POLICY, ALARM],
    ),
}
"""By name: a script, its arguments, the calls that it makes, but for requests to the endpoint."""


@pytest.fixture(scope="module")
def runtime_url() -> Iterator[str]:
    with answering_endpoint() as url:
        yield url


class Ran:
    """A script in a folder of its own, on an account."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.account = account
        self.folder = folder
        self.error: BaseException | None = None
        self.out = ""

    @property
    def calls(self) -> list[str]:
        return [call for call, _ in self.account.calls]

    @property
    def left(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def sent(self, operation: str) -> list[dict[str, Any]]:
        """The arguments of the calls of an operation."""
        return [given for call, given in self.account.calls if call.endswith(f".{operation}")]


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime_url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SCRIPTS))
    # Theirs are minutes.
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def run(script: str, arguments: Sequence[str], steps: Sequence[Step], url: str | None = None) -> Ran:
        asks = any(step.call.startswith("sagemaker-runtime.") for step in steps)
        account = Account(steps, "" if asks else url or runtime_url)
        monkeypatch.setattr(boto3, "Session", account.session)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        for name in [name for name, module in sys.modules.items() if _is_theirs(module)]:
            del sys.modules[name]
        ran = Ran(account, tmp_path)
        try:
            runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        except (ClientError, RuntimeError, KeyboardInterrupt, SystemExit) as error:
            ran.error = error
        ran.out = capsys.readouterr().out
        account.done()
        return ran

    return run


def _is_theirs(module: Any) -> bool:
    return Path(getattr(module, "__file__", None) or "/").parent == SCRIPTS


def named(steps: Sequence[Step]) -> list[str]:
    """The calls of steps as accounts note them: in the services' own case."""
    parted = (step.call.partition(".") for step in steps)
    return [f"{service}.{''.join(map(str.capitalize, name.split('_')))}" for service, _, name in parted]


def undoing(steps: Sequence[Step]) -> list[Step]:
    return [made for step in reversed(steps) for made in undone(step)]


@each_row("plan", PLANS)
def test_each_runs_to_its_end(run: Run, plan: str) -> None:
    script, arguments, steps = PLANS[plan]
    ran = run(script, arguments, steps)
    assert ran.error is None
    assert [call for call in ran.calls if not call.endswith(ASKS)] == [
        call for call in named(steps) if not call.endswith(ASKS)
    ]
    (left,) = ran.left
    made = [[*step.undo[0].split("."), dict(step.undo[1])] for step in steps if step.undo]
    assert json.loads(left.read_text()) == {"region": "us-east-1", "deletions": made}
    assert f"python created.py {left.name}" in ran.out
    # And that is what deletes it.
    after = undoing(steps)
    deleted = run("created.py", [left.name], after)
    assert deleted.error is None
    assert deleted.calls == named(after)
    assert deleted.left == []


ASKS = ("InvokeEndpoint", "InvokeEndpointWithResponseStream")

POINTS = [
    (plan, at) for plan, (_, _, steps) in PLANS.items() for at, step in enumerate(steps) if step is not NOTHING_YET
]


@each_row(("plan", "at"), POINTS, ids=str)
def test_what_was_made_is_deleted_when_a_call_fails(run: Run, plan: str, at: int) -> None:
    script, arguments, steps = PLANS[plan]
    before, failing = steps[:at], steps[at].failing()
    after = undoing(before)
    ran = run(script, arguments, [*before, failing, *after])
    assert f"not allowed: {failing.call}" in str(ran.error)
    assert [call for call in ran.calls if not call.endswith(ASKS)] == named([*before, failing, *after])
    given = [given for call, given in ran.account.calls if ".Delete" in call or ".Deregister" in call]
    assert given == [dict(step.undo[1]) for step in after if step.undo]
    assert ran.left == []


def test_a_deployment_says_what_sagemaker_needs(run: Run) -> None:
    more = ["--ami", "al2023-ami-sagemaker-inference-gpu-4-1", "--env", "OPTION_MAX_MODEL_LEN=8192", "--env", "A=b=c"]
    ran = run("deploy_boto3.py", [*MODEL, *DATA, *more, "--instances", "2"], ENDPOINT)
    (model,) = ran.sent("CreateModel")
    environment = {"OPTION_MAX_MODEL_LEN": "8192", "A": "b=c"}
    container = {"Image": "registry/lmi:1", "Environment": environment, "ModelDataUrl": "s3://b/model.tar.gz"}
    assert model == {"ModelName": NAME, "PrimaryContainer": container, "ExecutionRoleArn": ROLE}
    (config,) = ran.sent("CreateEndpointConfig")
    (variant,) = config["ProductionVariants"]
    assert variant == {
        "VariantName": "AllTraffic",
        "ModelName": NAME,
        "InstanceType": "ml.g6.xlarge",
        "InitialInstanceCount": 2,
        "ModelDataDownloadTimeoutInSeconds": 1800,
        "ContainerStartupHealthCheckTimeoutInSeconds": 1800,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
    }
    assert [call for call in ran.calls if call.endswith(ASKS)] == [f"sagemaker-runtime.{name}" for name in ASKS]
    assert '{"whole":true}' in ran.out
    assert "data: [DONE]" in ran.out


def test_a_folder_in_s3_is_not_unpacked(run: Run) -> None:
    ran = run("deploy_boto3.py", [*MODEL, "--model-data", "s3://b/model/"], ENDPOINT)
    (model,) = ran.sent("CreateModel")
    source = {"S3Uri": "s3://b/model/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    assert model["PrimaryContainer"]["ModelDataSource"] == {"S3DataSource": source}


def test_a_model_directory_is_packaged_and_uploaded(run: Run, tmp_path: Path) -> None:
    """And deleted there, when what comes next fails."""
    directory = directory_without_model(tmp_path / "model")
    steps = [Step("s3.put_object"), MAKE_MODEL.failing(), Step("s3.delete_object")]
    ran = run("deploy_boto3.py", [*MODEL, "--bucket", "b", "--model-dir", str(directory)], steps)
    (put_,), (deleted,), (model,) = ran.sent("PutObject"), ran.sent("DeleteObject"), ran.sent("CreateModel")
    with tarfile.open(fileobj=BytesIO(put_["Body"])) as archive:
        assert {"serving.properties", "lmi/handler/__init__.py"} <= {*archive.getnames()}
    assert (put_["Bucket"], put_["Key"]) == (deleted["Bucket"], deleted["Key"])
    assert model["PrimaryContainer"]["ModelDataUrl"] == f"s3://b/{put_['Key']}"


FAILED = Step("sagemaker.describe_endpoint", endpoint("Failed", reason="no ping"))
BASE = make_component(f"{NAME}-base")
COMPONENT_FAILED = Step("sagemaker.describe_inference_component", component("Failed", reason="no room"))
UNASKABLE = ["--request", '{"messages": []}']
STUCK = [STARTING] * ((1800 * 3) // 30)
ASYNC = PLANS["asynchronous"]

FAILURES: dict[str, tuple[str, list[str], list[Step], str]] = {
    "the endpoint fails": ("deploy_boto3.py", [*MODEL, *DATA], [*ENDPOINT[:3], STARTING, FAILED], "Failed: no ping"),
    "it does not come": ("deploy_boto3.py", [*MODEL, *DATA], [*ENDPOINT[:3], *STUCK], "demo: Creating: no reason"),
    "a component fails": (
        "adapters.py",
        [*MODEL, *DATA, "--adapter", "en=s3://b/en.tar.gz"],
        [*ENDPOINT, *BASE, make_component(f"{NAME}-en")[0], COMPONENT_FAILED],
        "demo-en: Failed: no room",
    ),
    "the first request fails": ("deploy_boto3.py", [*MODEL, *DATA, *UNASKABLE], ENDPOINT, "messages: expected some"),
    "an asynchronous request fails": (
        ASYNC[0],
        ASYNC[1],
        [*ENDPOINT, put(f"a/requests/{NAME}.json"), ASKED, NOTHING_YET, Step("s3.get_object", object_of(b"too long"))],
        "demo: too long",
    ),
    "wrong arguments": ("deploy_boto3.py", [*MODEL, "--model-dir", "."], [], "--model-dir needs --bucket"),
}
"""By name: a script, its arguments, its calls up to the failure, and the words that it is told with."""


@each_row("name", FAILURES)
def test_what_fails_is_told_and_deleted(run: Run, name: str) -> None:
    script, arguments, steps, words = FAILURES[name]
    after = undoing(steps)
    ran = run(script, arguments, [*steps, *after])
    assert words in str(ran.error)
    assert [call for call in ran.calls if not call.endswith(ASKS)] == named([*steps, *after])
    assert ran.left == []


def test_ctrl_c_deletes_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    steps = [*ENDPOINT[:3], STARTING, STARTING]
    ran = run("deploy_boto3.py", [*MODEL, *DATA], [*steps, *undoing(steps)])
    assert isinstance(ran.error, KeyboardInterrupt)
    assert ran.left == []


def test_what_cannot_be_deleted_yet_is_deleted_later(run: Run) -> None:
    """As an endpoint that is still being made; the configuration that it needs is left with it."""
    refused = Step("sagemaker.delete_endpoint", error=("ValidationException", "Cannot update in-progress endpoint"))
    ran = run("deploy_boto3.py", [*MODEL, *DATA], [*ENDPOINT[:3], FAILED, refused])
    assert "no ping" in str(ran.error)
    assert "Cannot update in-progress endpoint" in ran.out
    assert "later: python created.py demo.created.json" in ran.out
    assert not any(".Delete" in call for call in ran.calls[:-1])
    again = run("deploy_boto3.py", [*MODEL, *DATA], [])
    assert "demo.created.json: something of that name is there already" in str(again.error)
    # Somebody has deleted the endpoint meanwhile.
    gone = Step("sagemaker.delete_endpoint", error=("ValidationException", 'Could not find endpoint "demo".'))
    after = [gone, Step("sagemaker.delete_endpoint_config"), Step("sagemaker.delete_model")]
    later = run("created.py", ["demo.created.json"], after)
    assert (later.error, later.calls, later.left) == (None, named(after), [])


def test_components_are_where_they_say(run: Run) -> None:
    script, arguments, steps = PLANS["adapters"]
    ran = run(script, arguments, steps)
    (config,), (base, english, french) = ran.sent("CreateEndpointConfig"), ran.sent("CreateInferenceComponent")
    assert "ModelName" not in config["ProductionVariants"][0]
    assert base["Specification"] == {
        "ModelName": NAME,
        "StartupParameters": {
            "ModelDataDownloadTimeoutInSeconds": 1800,
            "ContainerStartupHealthCheckTimeoutInSeconds": 1800,
        },
        "ComputeResourceRequirements": {"NumberOfAcceleratorDevicesRequired": 4, "MinMemoryRequiredInMb": 16384},
    }
    assert (base["VariantName"], base["RuntimeConfig"]) == ("AllTraffic", {"CopyCount": 1})
    assert english == {
        "InferenceComponentName": "demo-en",
        "EndpointName": NAME,
        "Specification": {
            "BaseInferenceComponentName": "demo-base",
            "Container": {"ArtifactUrl": "s3://b/en.tar.gz"},
        },
    }
    assert french["InferenceComponentName"] == "demo-fr"
    (model,) = ran.sent("CreateModel")
    assert model["PrimaryContainer"]["Environment"] == {"OPTION_ENABLE_LORA": "true"}
    asked = [given["InferenceComponentName"] for given in ran.sent("InvokeEndpoint")]
    assert asked == ["demo-base", "demo-en", "demo-fr"]


SCALINGS: dict[str, tuple[list[str], str, str, str]] = {
    "an endpoint": (
        [],
        "endpoint/demo/variant/AllTraffic",
        "sagemaker:variant:DesiredInstanceCount",
        "SageMakerVariantConcurrentRequestsPerModelHighResolution",
    ),
    "a component": (
        ["--component", "demo-base"],
        "inference-component/demo-base",
        "sagemaker:inference-component:DesiredCopyCount",
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    ),
}


@each_row("name", SCALINGS)
def test_what_is_scaled_by_what(run: Run, name: str) -> None:
    arguments, resource, dimension, metric = SCALINGS[name]
    ran = run("scaling.py", [NAME, *arguments, "--max", "4", "--target", "20"], [NOT_SCALED, SCALED, POLICY])
    assert ran.error is None
    (registered,), (policy,) = ran.sent("RegisterScalableTarget"), ran.sent("PutScalingPolicy")
    target = {"ServiceNamespace": "sagemaker", "ResourceId": resource, "ScalableDimension": dimension}
    assert registered == {**target, "MinCapacity": 1, "MaxCapacity": 4}
    assert target.items() <= policy.items()
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == 20
    assert tracking["PredefinedMetricSpecification"] == {"PredefinedMetricType": metric}
    # Of botocore's own list.
    model = boto3.Session().client("application-autoscaling").meta.service_model
    assert metric in model.shape_for("MetricType").enum
    for left in ran.left:
        left.unlink()


def test_what_is_scaled_already_stays_so(run: Run) -> None:
    target = {**TARGET, "MinCapacity": 1, "MaxCapacity": 2, "RoleARN": ROLE, "CreationTime": 0}
    there = Step("application-autoscaling.describe_scalable_targets", {"ScalableTargets": [target]})
    ran = run("scaling.py", [NAME, "--max", "4"], [there])
    assert "it is scaled already" in str(ran.error)
    assert (len(ran.calls), ran.left) == (1, [])


UPDATE = [f"{NAME}", *(word.replace(NAME, "new") for word in MODEL), *DATA]
NEW_MODEL = Step(MAKE_MODEL.call, MAKE_MODEL.answer, undo=delete("model", ModelName="new"))
NEW_CONFIG = Step(MAKE_CONFIG.call, MAKE_CONFIG.answer, undo=delete("endpoint_config", EndpointConfigName="new"))
CHANGE = Step("sagemaker.update_endpoint", {"EndpointArn": f"{ARN}endpoint/e"})
UPDATED = [
    Step("sagemaker.describe_endpoint", endpoint("InService", "old")),
    *(NEW_MODEL, NEW_CONFIG, CHANGE),
    Step("sagemaker.describe_endpoint", endpoint("Updating", "old")),
]
HAS_NEW = Step("sagemaker.describe_endpoint", endpoint("InService", "new"))
HAS_OLD = Step("sagemaker.describe_endpoint", endpoint("InService", "old", "an alarm"))
MIXED = Step("sagemaker.describe_endpoint", endpoint("UpdateRollbackFailed", "old", "no room"))

UPDATES: dict[str, tuple[list[str], list[Step], str, bool]] = {
    "it is there": ([], [HAS_NEW], "", True),
    "sagemaker takes it back": ([], [HAS_OLD], "InService with old: an alarm", False),
    "nobody knows": ([], [MIXED], "UpdateRollbackFailed with old: no room", True),
    "its first request fails": (UNASKABLE, [HAS_NEW, CHANGE, HAS_OLD], "messages: expected some", False),
}
"""By name: arguments, the calls after the endpoint was Updating, the error, whether what is new is kept."""


@each_row("name", UPDATES)
def test_an_update_that_fails_is_taken_back(run: Run, name: str) -> None:
    more, then, words, kept = UPDATES[name]
    after = [] if kept else undoing(UPDATED)
    ran = run("update.py", [*UPDATE, *more, "--alarm", "errors"], [*UPDATED, *then, *after])
    assert words in str(ran.error or "")
    assert bool(words) == (ran.error is not None)
    assert [call for call in ran.calls if not call.endswith(ASKS)] == named([*UPDATED, *then, *after])
    change, *back = ran.sent("UpdateEndpoint")
    assert change["DeploymentConfig"]["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": "errors"}]}
    assert [given["EndpointConfigName"] for given in back] == ["old"] * (CHANGE in then)
    assert [left.name for left in ran.left] == ["new.created.json"] * kept
    for left in ran.left:
        left.unlink()


def test_ctrl_c_leaves_an_update_to_sagemaker(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    ran = run("update.py", UPDATE, UPDATED)
    assert isinstance(ran.error, KeyboardInterrupt)
    assert [left.name for left in ran.left] == ["new.created.json"]
