"""Automatic scaling of what is deployed, by boto3. Docs: docs/sagemaker.md.

    python scaling.py ENDPOINT --max 4 --target 32                     instances, by the requests that each has at once
    python scaling.py ENDPOINT --component ENDPOINT-base --max 4       copies of an inference component, likewise
    python scaling.py ENDPOINT --backlog --min 0 --max 4 --target 200  instances of asynchronous inference, by the queue

--target is what one of them should have. If anything fails, what was made is deleted (created.py).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import boto3
from created import Created, created_in
from deploy_boto3 import VARIANT

OUT_S = 60
"""Between two steps up; a new instance that is not up yet counts as there."""
IN_S = 600
"""Between two steps down: a start costs minutes."""


def metric_of(given: argparse.Namespace) -> dict[str, Any]:
    """What is held at --target."""
    if given.backlog:
        dimensions = [{"Name": "EndpointName", "Value": given.endpoint}]
        return {
            "CustomizedMetricSpecification": {
                "MetricName": "ApproximateBacklogSizePerInstance",
                "Namespace": "AWS/SageMaker",
                "Dimensions": dimensions,
                "Statistic": "Average",
            }
        }
    kind = "InferenceComponentConcurrentRequestsPerCopy" if given.component else "VariantConcurrentRequestsPerModel"
    return {"PredefinedMetricSpecification": {"PredefinedMetricType": f"SageMaker{kind}HighResolution"}}


def from_none(session: boto3.Session, created: Created, target: dict[str, str], endpoint: str) -> None:
    """The first instance when a request waits and there is none: a backlog for each instance is then no number."""
    name = f"{endpoint}-from-none"
    policy = session.client("application-autoscaling").put_scaling_policy(
        **target,
        PolicyName=name,
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average",
            "Cooldown": IN_S,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    session.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        MetricName="HasBacklogWithoutCapacity",
        Namespace="AWS/SageMaker",
        Dimensions=[{"Name": "EndpointName", "Value": endpoint}],
        Statistic="Average",
        Period=60,
        EvaluationPeriods=2,
        DatapointsToAlarm=2,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
        AlarmActions=[policy["PolicyARN"]],
    )
    created.add("cloudwatch", "delete_alarms", AlarmNames=[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--component", help="an inference component; adapters are where their base is: scale that")
    of.add_argument("--backlog", action="store_true", help="the endpoint is one for asynchronous inference")
    parser.add_argument("--min", type=int, default=1)
    parser.add_argument("--max", type=int, required=True)
    parser.add_argument("--target", type=float, default=32)
    parser.add_argument("--region")
    given = parser.parse_args()
    session = boto3.Session(region_name=given.region)
    autoscaling = session.client("application-autoscaling")
    if given.component:
        resource, dimension = f"inference-component/{given.component}", "inference-component:DesiredCopyCount"
    else:
        resource, dimension = f"endpoint/{given.endpoint}/variant/{VARIANT}", "variant:DesiredInstanceCount"
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource,
        "ScalableDimension": f"sagemaker:{dimension}",
    }
    listed = {
        "ServiceNamespace": "sagemaker",
        "ResourceIds": [resource],
        "ScalableDimension": target["ScalableDimension"],
    }
    if autoscaling.describe_scalable_targets(**listed)["ScalableTargets"]:
        sys.exit(f"{resource}: it is scaled already")
    with created_in(Path(f"{given.component or given.endpoint}.scaling.json"), session) as created:
        autoscaling.register_scalable_target(**target, MinCapacity=given.min, MaxCapacity=given.max)
        # Its policies go with it.
        created.add("application-autoscaling", "deregister_scalable_target", **target)
        autoscaling.put_scaling_policy(
            **target,
            PolicyName=f"{given.component or given.endpoint}-target",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": given.target,
                **metric_of(given),
                "ScaleOutCooldown": OUT_S,
                "ScaleInCooldown": IN_S,
            },
        )
        if given.backlog and given.min == 0:
            from_none(session, created, target, given.endpoint)
    print(f"{resource}: {given.min} to {given.max}")
    print(f"To end that, before the endpoint is deleted: python created.py {created.file}")


if __name__ == "__main__":
    main()
