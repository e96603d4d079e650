"""The same as deploy_boto3.py, by SageMaker's Python SDK v3: `sagemaker` 3, or its part `sagemaker-core` alone.

python deploy_sdk.py --role ROLE --image IMAGE --instance-type ml.g6.xlarge --bucket BUCKET --model-dir MODEL_DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import boto3
from created import Created, created_in
from deploy_boto3 import (
    DOWNLOAD_S,
    INSTANCE_S,
    POLL_S,
    STARTUP_S,
    VARIANT,
    ask_streamed,
    model_data,
    parser,
)
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import (
    ContainerDefinition,
    ModelDataSource,
    ProductionVariant,
    ProductionVariantRoutingConfig,
    S3ModelDataSource,
)


def note(session: boto3.Session, created: Created, operation: str, delete: str, **arguments: str) -> None:
    """Has what `operation` makes noted as soon as it is made.

    A resource's `create` makes it and then describes it; where the second call fails, nobody is given what is there.
    """

    def made(http_response: Any, **_: Any) -> None:
        if http_response.status_code < 300:
            created.add("sagemaker", delete, **arguments)

    session.events.register(f"after-call.sagemaker.{operation}", made)


def container_of(given: argparse.Namespace, data: str | None) -> ContainerDefinition:
    container = ContainerDefinition(image=given.image, environment=dict(given.env))
    if data and data.endswith("/"):
        source = S3ModelDataSource(s3_uri=data, s3_data_type="S3Prefix", compression_type="None")
        container.model_data_source = ModelDataSource(s3_data_source=source)
    elif data:
        container.model_data_url = data
    return container


def variant_of(given: argparse.Namespace) -> ProductionVariant:
    variant = ProductionVariant(
        variant_name=VARIANT,
        model_name=given.name,
        instance_type=given.instance_type,
        initial_instance_count=given.instances,
        model_data_download_timeout_in_seconds=DOWNLOAD_S,
        container_startup_health_check_timeout_in_seconds=STARTUP_S,
        routing_config=ProductionVariantRoutingConfig(routing_strategy="LEAST_OUTSTANDING_REQUESTS"),
    )
    if given.ami:
        variant.inference_ami_version = given.ami
    return variant


def main() -> None:
    given = parser(__doc__).parse_args()
    session, name = boto3.Session(region_name=given.region), given.name
    with created_in(Path(f"{name}.created.json"), session) as created:
        # Before the SDK makes its client, which takes them over.
        note(session, created, "CreateModel", "delete_model", ModelName=name)
        note(session, created, "CreateEndpointConfig", "delete_endpoint_config", EndpointConfigName=name)
        note(session, created, "CreateEndpoint", "delete_endpoint", EndpointName=name)
        container = container_of(given, model_data(session, created, given))
        Model.create(model_name=name, primary_container=container, execution_role_arn=given.role, session=session)
        EndpointConfig.create(endpoint_config_name=name, production_variants=[variant_of(given)], session=session)
        endpoint = Endpoint.create(endpoint_name=name, endpoint_config_name=name, session=session)
        # FailedStatusError has SageMaker's reason.
        endpoint.wait_for_status("InService", poll=POLL_S, timeout=INSTANCE_S + DOWNLOAD_S + STARTUP_S)
        answer = endpoint.invoke(body=json.dumps(given.request), content_type="application/json")
        print(answer.body.read().decode())
        # endpoint.invoke_with_response_stream fails in 2.27: 'EventStream' object has no attribute 'get'.
        ask_streamed(session.client("sagemaker-runtime"), {"EndpointName": name}, given.request)
    print(f"{name} is in service. To delete it: python created.py {created.file}")


if __name__ == "__main__":
    main()
