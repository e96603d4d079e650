"""docs/sagemaker/deploy_sdk.py with SageMaker's SDK v3, to its end, and once for each call that may fail.

    python sagemaker_sdk.py URL DOCS KIT  ->  of each run: its calls, those expected, its error

URL is that of the runtime API; DOCS has the script, KIT has account.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from sagemaker.core.utils.exceptions import WaiterError

NAME = "demo"
ARN = "arn:aws:sagemaker:us-east-1:111122223333:"
ROLE = "arn:aws:iam::111122223333:role/SageMaker"
ARGUMENTS = ["--name", NAME, "--role", ROLE, "--image", "registry/lmi:1", "--instance-type", "ml.g6.xlarge"]
DATA = ["--model-data", "s3://b/model.tar.gz", "--env", "OPTION_MAX_MODEL_LEN=8192"]
UNASKABLE = ["--request", '{"messages": []}']


def plan(kit: Any) -> list[Any]:
    """Each resource is made, then described."""
    model, config = f"{ARN}model/m", f"{ARN}endpoint-config/c"
    variants = [{"VariantName": "AllTraffic"}]
    described = {
        "EndpointConfigName": NAME,
        "EndpointConfigArn": config,
        "ProductionVariants": variants,
        "CreationTime": 0,
    }
    return [
        kit.Step("sagemaker.create_model", {"ModelArn": model}, undo=("sagemaker.delete_model", {"ModelName": NAME})),
        kit.Step("sagemaker.describe_model", {"ModelName": NAME, "ModelArn": model, "CreationTime": 0}),
        kit.Step(
            "sagemaker.create_endpoint_config",
            {"EndpointConfigArn": config},
            undo=("sagemaker.delete_endpoint_config", {"EndpointConfigName": NAME}),
        ),
        kit.Step("sagemaker.describe_endpoint_config", described),
        kit.Step(
            "sagemaker.create_endpoint",
            {"EndpointArn": f"{ARN}endpoint/e"},
            undo=("sagemaker.delete_endpoint", {"EndpointName": NAME}),
        ),
        *[kit.Step("sagemaker.describe_endpoint", kit.endpoint("Creating"))] * 2,
        kit.Step("sagemaker.describe_endpoint", kit.endpoint("InService")),
    ]


def run(kit: Any, script: Path, arguments: list[str], steps: list[Any], url: str) -> dict[str, Any]:
    account = kit.Account(steps, url)
    setattr(boto3, "Session", account.session)  # noqa: B010
    sys.argv = [script.name, *arguments]
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except (ClientError, WaiterError) as failed:
            error = f"{type(failed).__name__}: {failed}"
        left = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
        os.chdir("/")
    account.done()
    calls = [call for call, _ in account.calls if not call.startswith("sagemaker-runtime.")]
    given = {call: sent for call, sent in account.calls if ".Create" in call}
    return {"calls": calls, "error": error, "left": left, "given": given}


def main(url: str, docs: Path, folder: Path) -> list[dict[str, Any]]:
    sys.path[:0] = [str(docs), str(folder)]
    import account as kit

    script = docs / "deploy_sdk.py"
    steps = plan(kit)
    seen = []
    failed = kit.Step("sagemaker.describe_endpoint", kit.endpoint("Failed", reason="no ping"))
    cases = [(steps, [], ""), (steps, UNASKABLE, "messages: expected some"), ([*steps[:-1], failed], [], "no ping")]
    cases += [([*steps[:at], step.failing()], [], f"not allowed: {step.call}") for at, step in enumerate(steps)]
    for taken, more, words in cases:
        after = [undo for step in reversed(taken) for undo in kit.undone(step)] if words else []
        with contextlib.redirect_stdout(io.StringIO()) as out:
            ran = run(kit, script, [*ARGUMENTS, *DATA, *more], [*taken, *after], url)
        expected = [step.call.replace("_", "") for step in [*taken, *after]]
        seen.append({**ran, "expected": expected, "words": words, "out": out.getvalue()})
    return seen


if __name__ == "__main__":
    time.sleep = lambda _: None
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])), default=str))
