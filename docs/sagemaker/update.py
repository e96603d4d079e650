"""Another model, image or environment for an endpoint that is in service, and back if it fails; by boto3.

    python update.py ENDPOINT --role ROLE --image IMAGE --instance-type ml.g6.xlarge --model-data s3://... --alarm NAME

New instances stand beside the old ones, and get a tenth of the requests first. If an alarm of CloudWatch's goes off, or
they do not start, SageMaker takes the old ones back, and this deletes the new model and configuration. Docs:
docs/sagemaker.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import boto3
from created import created_in
from deploy_boto3 import (
    DOWNLOAD_S,
    INSTANCE_S,
    POLL_S,
    STARTUP_S,
    ask,
    make_config,
    make_model,
    model_data,
    parser,
)

CANARY = {"Type": "CAPACITY_PERCENT", "Value": 10}
CANARY_S = 600
"""In which an alarm takes it back before all requests go there."""
UPDATE_S = INSTANCE_S + 2 * (DOWNLOAD_S + STARTUP_S) + CANARY_S


def deployment(alarms: list[str]) -> dict[str, Any]:
    traffic = {"Type": "CANARY", "CanarySize": CANARY, "WaitIntervalInSeconds": CANARY_S}
    policy: dict[str, Any] = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": traffic,
            "TerminationWaitInSeconds": 120,
            "MaximumExecutionTimeoutInSeconds": UPDATE_S,
        }
    }
    if alarms:
        policy["AutoRollbackConfiguration"] = {"Alarms": [{"AlarmName": name} for name in alarms]}
    return policy


def wait(sagemaker: Any, endpoint: str) -> dict[str, Any]:
    """What the endpoint is when SageMaker has done: with the new configuration, or with the old one again."""
    while True:
        described: dict[str, Any] = sagemaker.describe_endpoint(EndpointName=endpoint)
        print(f"{time.strftime('%H:%M:%S')} {endpoint}: {described['EndpointStatus']}", flush=True)
        if described["EndpointStatus"] not in ("Updating", "RollingBack", "SystemUpdating"):
            return described
        time.sleep(POLL_S)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("endpoint")
    options.add_argument("--alarm", action="append", default=[], metavar="NAME", help="of CloudWatch's, there already")
    given = options.parse_args()
    if given.name == given.endpoint:
        options.error("--name: expected another one than the endpoint's")
    session, endpoint = boto3.Session(region_name=given.region), given.endpoint
    sagemaker = session.client("sagemaker")
    old = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    with created_in(Path(f"{given.name}.created.json"), session) as created:
        make_model(sagemaker, created, given, model_data(session, created, given))
        make_config(sagemaker, created, given)
        sagemaker.update_endpoint(
            EndpointName=endpoint, EndpointConfigName=given.name, DeploymentConfig=deployment(given.alarm)
        )
    # From here on the endpoint may have what was made: Ctrl-C leaves it.
    described = wait(sagemaker, endpoint)
    if (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", given.name):
        try:
            ask(session, endpoint, given.request)
        except Exception as error:
            print(f"failed: {error}\nback to {old}")
            sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=old)
            if wait(sagemaker, endpoint)["EndpointConfigName"] == old:
                created.delete_all()
            raise
        print(f"{endpoint} has {given.name}. The old configuration, {old}, and its model are there still.")
        return
    if (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", old):
        created.delete_all()
    reason = described.get("FailureReason", "no reason was given")
    raise RuntimeError(f"{endpoint}: {described['EndpointStatus']} with {described['EndpointConfigName']}: {reason}")


if __name__ == "__main__":
    main()
