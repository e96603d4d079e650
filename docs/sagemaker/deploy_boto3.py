"""A model on an endpoint of SageMaker: package, upload, model, endpoint, first requests. Docs: docs/sagemaker.md.

    python deploy_boto3.py --role ROLE --image IMAGE --instance-type ml.g6.xlarge --bucket BUCKET --model-dir MODEL_DIR
    python deploy_boto3.py --role ROLE --image IMAGE --instance-type ml.g6.xlarge --env HF_MODEL_ID=owner/model

IMAGE is AWS's LMI container, or one of docs/containers/. If anything fails, what was made is deleted (created.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from created import Created, created_in

DOWNLOAD_S = 1800
"""ModelDataDownloadTimeoutInSeconds, 60 to 3600: the archive from S3, and what is in it unpacked."""
STARTUP_S = 1800
"""ContainerStartupHealthCheckTimeoutInSeconds, 60 to 3600: until /ping is 200, the container's own downloads too."""
INSTANCE_S = 1800
"""That the waiter waits for the instance besides."""
POLL_S = 30
ANSWER_S = 70
"""A container has 60 seconds for an answer that is not streamed, or for the first bytes of one that is."""
ASYNC_S = 900
VARIANT = "AllTraffic"
LMI = Path(sys.executable).with_name("lmi")
REQUEST = '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 50}'


def model_data(session: boto3.Session, created: Created, given: argparse.Namespace) -> str | None:
    """Its address in S3, where a model directory is uploaded first; None where the environment names the model."""
    if not given.model_dir:
        return str(given.model_data) if given.model_data else None
    if not given.bucket:
        sys.exit("--model-dir needs --bucket")
    # Another key each time: what is there is somebody's.
    key = f"{given.name}/{time.strftime('%Y%m%d-%H%M%S')}/model.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "model.tar.gz")
        subprocess.run([LMI, "package", given.model_dir, "-o", archive], check=True)
        session.client("s3").upload_file(str(archive), given.bucket, key)
    created.add("s3", "delete_object", Bucket=given.bucket, Key=key)
    return f"s3://{given.bucket}/{key}"


def make_model(sagemaker: Any, created: Created, given: argparse.Namespace, data: str | None) -> None:
    container: dict[str, Any] = {"Image": given.image, "Environment": dict(given.env)}
    if data and data.endswith("/"):
        # Files as they are: large models are there sooner. Not for batch transform.
        source = {"S3Uri": data, "S3DataType": "S3Prefix", "CompressionType": "None"}
        container["ModelDataSource"] = {"S3DataSource": source}
    elif data:
        container["ModelDataUrl"] = data
    sagemaker.create_model(ModelName=given.name, PrimaryContainer=container, ExecutionRoleArn=given.role)
    created.add("sagemaker", "delete_model", ModelName=given.name)


def make_config(sagemaker: Any, created: Created, given: argparse.Namespace) -> None:
    variant = {
        "VariantName": VARIANT,
        "ModelName": given.name,
        "InstanceType": given.instance_type,
        "InitialInstanceCount": given.instances,
        "ModelDataDownloadTimeoutInSeconds": DOWNLOAD_S,
        "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_S,
        # An instance that is busy with long answers gets fewer new ones.
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    if given.ami:
        variant["InferenceAmiVersion"] = given.ami
    config: dict[str, Any] = {"EndpointConfigName": given.name, "ProductionVariants": [variant]}
    if given.async_output:
        folders = {"S3OutputPath": f"{given.async_output}/answers", "S3FailurePath": f"{given.async_output}/failures"}
        at_once = {"MaxConcurrentInvocationsPerInstance": given.concurrent}
        config["AsyncInferenceConfig"] = {"OutputConfig": folders, "ClientConfig": at_once}
    sagemaker.create_endpoint_config(**config)
    created.add("sagemaker", "delete_endpoint_config", EndpointConfigName=given.name)


def make_endpoint(sagemaker: Any, created: Created, given: argparse.Namespace) -> None:
    """Returns when it is in service. Raises RuntimeError with the reason when it fails."""
    sagemaker.create_endpoint(EndpointName=given.name, EndpointConfigName=given.name)
    created.add("sagemaker", "delete_endpoint", EndpointName=given.name)
    wait(sagemaker, given.name)


def wait(sagemaker: Any, endpoint: str, component: str = "") -> None:
    """Until an endpoint, or a component of it, is in service.

    Raises RuntimeError with SageMaker's reason if it fails, or does not come.
    """
    for _ in range((INSTANCE_S + DOWNLOAD_S + STARTUP_S) // POLL_S):
        if component:
            described = sagemaker.describe_inference_component(InferenceComponentName=component)
            status = described["InferenceComponentStatus"]
        else:
            described = sagemaker.describe_endpoint(EndpointName=endpoint)
            status = described["EndpointStatus"]
        print(f"{time.strftime('%H:%M:%S')} {component or endpoint}: {status}", flush=True)
        if status == "InService":
            return
        if status != "Creating":
            break
        time.sleep(POLL_S)
    reason = described.get("FailureReason", "no reason was given")
    log = f"/aws/sagemaker/{f'InferenceComponents/{component}' if component else f'Endpoints/{endpoint}'}"
    raise RuntimeError(f"{component or endpoint}: {status}: {reason} (the container's log is CloudWatch's {log})")


def ask(session: boto3.Session, name: str, body: dict[str, Any], component: str = "") -> None:
    """A whole answer, and where the model generates, the same streamed."""
    runtime = session.client("sagemaker-runtime", config=Config(read_timeout=ANSWER_S))
    to = {"EndpointName": name, **({"InferenceComponentName": component} if component else {})}
    answer = runtime.invoke_endpoint(**to, ContentType="application/json", Body=json.dumps(body))
    print(answer["Body"].read().decode())
    if body.keys() & {"messages", "inputs", "prompt"}:
        ask_streamed(runtime, to, body)


def ask_streamed(runtime: Any, to: dict[str, str], body: dict[str, Any]) -> None:
    streamed = runtime.invoke_endpoint_with_response_stream(
        **to, ContentType="application/json", Body=json.dumps(body | {"stream": True})
    )
    # Its parts end anywhere, inside a character too.
    print(b"".join(event["PayloadPart"]["Bytes"] for event in streamed["Body"]).decode())


def ask_async(session: boto3.Session, created: Created, name: str, body: dict[str, Any], folder: str) -> None:
    """An answer of an endpoint that takes requests from S3. Raises RuntimeError with the container's error."""
    s3 = session.client("s3")
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    key = f"{prefix}/requests/{name}.json"
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(body).encode())
    created.add("s3", "delete_object", Bucket=bucket, Key=key)
    runtime = session.client("sagemaker-runtime")
    asked = runtime.invoke_endpoint_async(
        EndpointName=name, ContentType="application/json", InputLocation=f"s3://{bucket}/{key}"
    )
    for _ in range(ASYNC_S):
        if answer := read(s3, asked["OutputLocation"]):
            print(answer.decode())
            return
        if failure := read(s3, asked["FailureLocation"]):
            raise RuntimeError(f"{name}: {failure.decode()}")
        time.sleep(1)
    raise RuntimeError(f"{name}: no answer within {ASYNC_S} seconds")


def read(s3: Any, location: str) -> bytes | None:
    """An object, or None where there is none yet. Without s3:ListBucket that is AccessDenied."""
    bucket, _, key = location.removeprefix("s3://").partition("/")
    try:
        content: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "AccessDenied"):
            return None
        raise
    return content


def parser(text: str | None) -> argparse.ArgumentParser:
    """The arguments of a model and of the endpoint that it is for."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--name", default=f"lmi-{time.strftime('%Y%m%d-%H%M%S')}", help="of all that is made")
    made.add_argument("--role", required=True, help="the ARN of SageMaker's execution role")
    made.add_argument("--image", required=True, help="in a registry that the role may read")
    made.add_argument("--instance-type", required=True)
    made.add_argument("--instances", type=int, default=1)
    made.add_argument("--ami", help="InferenceAmiVersion, where the image needs a newer driver than the default's")
    made.add_argument("--bucket", help="where --model-dir is uploaded to")
    data = made.add_mutually_exclusive_group()
    data.add_argument("--model-dir", type=Path, help="is packaged, and uploaded to --bucket")
    data.add_argument("--model-data", help="s3://..., what is there already: a .tar.gz, or a folder that ends with /")
    made.add_argument("--env", action="append", default=[], type=pair, metavar="NAME=VALUE")
    made.add_argument("--async-output", metavar="s3://BUCKET/FOLDER", help="an endpoint for asynchronous inference")
    made.add_argument("--concurrent", type=int, default=64, help="asynchronous requests at once, of each instance")
    made.add_argument("--request", type=json.loads, default=REQUEST, metavar="JSON", help="the first one")
    made.add_argument("--region")
    return made


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def main() -> None:
    given = parser(__doc__).parse_args()
    session = boto3.Session(region_name=given.region)
    sagemaker = session.client("sagemaker")
    with created_in(Path(f"{given.name}.created.json"), session) as created:
        make_model(sagemaker, created, given, model_data(session, created, given))
        make_config(sagemaker, created, given)
        make_endpoint(sagemaker, created, given)
        if given.async_output:
            ask_async(session, created, given.name, given.request, given.async_output)
        else:
            ask(session, given.name, given.request)
    print(f"{given.name} is in service. To delete it: python created.py {created.file}")


if __name__ == "__main__":
    main()
