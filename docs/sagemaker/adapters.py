"""A base model and LoRA adapters, each an inference component of one endpoint, by boto3. Docs: docs/sagemaker.md.

    python adapters.py --role ROLE --image IMAGE --instance-type ml.g6.12xlarge --bucket BUCKET --model-dir MODEL_DIR \\
        --devices 4 --memory-mb 65536 --adapter english=s3://BUCKET/english.tar.gz --adapter french=s3://BUCKET/french.tar.gz

The base is one model for all of them; a request names an adapter's component, or the base's. If anything fails, what
was made is deleted (created.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import boto3
from created import Created, created_in
from deploy_boto3 import (
    DOWNLOAD_S,
    STARTUP_S,
    VARIANT,
    ask,
    make_model,
    model_data,
    pair,
    parser,
    wait,
)


def make_endpoint(sagemaker: Any, created: Created, given: argparse.Namespace) -> None:
    """Instances without a model; components bring theirs."""
    variant = {
        "VariantName": VARIANT,
        "InstanceType": given.instance_type,
        "InitialInstanceCount": given.instances,
        # As components get more copies.
        "ManagedInstanceScaling": {
            "Status": "ENABLED",
            "MinInstanceCount": given.instances,
            "MaxInstanceCount": max(given.instances, given.max_instances),
        },
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    if given.ami:
        variant["InferenceAmiVersion"] = given.ami
    sagemaker.create_endpoint_config(
        EndpointConfigName=given.name, ExecutionRoleArn=given.role, ProductionVariants=[variant]
    )
    created.add("sagemaker", "delete_endpoint_config", EndpointConfigName=given.name)
    sagemaker.create_endpoint(EndpointName=given.name, EndpointConfigName=given.name)
    created.add("sagemaker", "delete_endpoint", EndpointName=given.name)
    wait(sagemaker, given.name)


def make_component(
    sagemaker: Any, created: Created, endpoint: str, name: str, specification: dict[str, Any], **more: Any
) -> None:
    """Returns when it is in service. Raises RuntimeError with the reason when it fails."""
    sagemaker.create_inference_component(
        InferenceComponentName=name, EndpointName=endpoint, Specification=specification, **more
    )
    created.add("sagemaker", "delete_inference_component", InferenceComponentName=name)
    wait(sagemaker, endpoint, name)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--devices", type=int, default=1, help="accelerators of one copy of the base")
    options.add_argument("--memory-mb", type=int, default=16384, help="of the instance, for one copy of the base")
    options.add_argument("--max-instances", type=int, default=1)
    options.add_argument("--adapter", action="append", default=[], type=pair, metavar="NAME=s3://....tar.gz")
    given = options.parse_args()
    given.env = [("OPTION_ENABLE_LORA", "true"), *given.env]
    session, base = boto3.Session(region_name=given.region), f"{given.name}-base"
    sagemaker = session.client("sagemaker")
    with created_in(Path(f"{given.name}.created.json"), session) as created:
        make_model(sagemaker, created, given, model_data(session, created, given))
        make_endpoint(sagemaker, created, given)
        specification = {
            "ModelName": given.name,
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": DOWNLOAD_S,
                "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_S,
            },
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": given.devices,
                "MinMemoryRequiredInMb": given.memory_mb,
            },
        }
        copies = {"CopyCount": 1}
        make_component(sagemaker, created, given.name, base, specification, VariantName=VARIANT, RuntimeConfig=copies)
        for adapter, url in given.adapter:
            # Without resources, a variant and copies of its own: it is where the base is.
            specification = {"BaseInferenceComponentName": base, "Container": {"ArtifactUrl": url}}
            make_component(sagemaker, created, given.name, f"{given.name}-{adapter}", specification)
        for component in (base, *(f"{given.name}-{adapter}" for adapter, _ in given.adapter)):
            print(component)
            ask(session, given.name, given.request, component)
    print(f"{given.name} is in service. To delete it: python created.py {created.file}")


if __name__ == "__main__":
    main()
