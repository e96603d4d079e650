"""docs/sagemaker/deploy_sdk.py with the SDK that it is for, which is installed beside other people's clients."""

from __future__ import annotations

import pytest

from ..kit.clients.endpoint import answering_endpoint
from ..kit.clients.scripts import run_client
from ..kit.paths import DOCS, ROOT

pytestmark = [pytest.mark.engine, pytest.mark.once]
"""As the folder's others, for their environment is made for them."""


def test_it_deploys_and_deletes_what_it_made_when_a_call_fails() -> None:
    with answering_endpoint() as url:
        first, *others = run_client("sagemaker_sdk.py", url, str(DOCS / "sagemaker"), str(ROOT / "tests/kit/clients"))
    assert first["error"] == ""
    (left,) = first["left"]
    assert [operation for _, operation, _ in left["deletions"]] == [
        "delete_model", "delete_endpoint_config", "delete_endpoint",
    ]  # fmt: skip
    assert '{"whole":true}' in first["out"]
    assert "data: [DONE]" in first["out"]
    variant = first["given"]["sagemaker.CreateEndpointConfig"]["ProductionVariants"][0]
    assert variant["ModelDataDownloadTimeoutInSeconds"] == 1800
    assert variant["ContainerStartupHealthCheckTimeoutInSeconds"] == 1800
    container = first["given"]["sagemaker.CreateModel"]["PrimaryContainer"]
    assert container["Environment"] == {"OPTION_MAX_MODEL_LEN": "8192"}
    assert len(others) == 10
    for ran in (first, *others):
        assert [call.lower() for call in ran["calls"]] == ran["expected"], ran["error"]
        assert ran["words"] in ran["error"]
        assert bool(ran["words"]) == bool(ran["error"])
    assert [ran["left"] for ran in others] == [[]] * len(others)
