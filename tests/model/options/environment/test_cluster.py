"""Several hosts, by the variables of LeaderWorkerSet and of DJL Serving's images."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.model.options.environment.cluster import CLUSTER

from ....kit.api.errors import OptionError
from ....kit.api.options import load_settings

LWS = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "lmi-0.lmi.default"}
"""As sigs.k8s.io/lws sets them in a pod (api/leaderworkerset/v1, leaderworkerset_types.go)."""
DJL = {"DJL_CLUSTER_SIZE": "3", "DJL_LEADER_ADDR": "djl-leader"}


def parallel(tmp_path: Path, environment: dict[str, str], **options: str) -> tuple[int, int, str | None]:
    found = load_settings(tmp_path, environment=environment, overrides=options).parallel
    return found.nnodes, found.node_rank, found.master_addr


def test_who_goes_first(tmp_path: Path) -> None:
    assert {variable.name for variable in CLUSTER} == {*LWS, *DJL}
    assert parallel(tmp_path, LWS) == (2, 1, "lmi-0.lmi.default")
    assert parallel(tmp_path, DJL) == (3, 0, "djl-leader")
    assert parallel(tmp_path, {**DJL, **LWS}) == (2, 1, "lmi-0.lmi.default")
    given = {"nnodes": "4", "node_rank": "3", "master_addr": "mine"}
    assert parallel(tmp_path, {**DJL, **LWS}, **given) == (4, 3, "mine")
    (tmp_path / "serving.properties").write_text("option.master_addr=mine\n")
    assert parallel(tmp_path, {**DJL, **LWS}) == (2, 1, "mine")
    tmp_path.joinpath("serving.properties").unlink()
    assert parallel(tmp_path, {**LWS, "OPTION_MASTER_ADDR": "env"}) == (2, 1, "env")


def test_a_group_of_one_is_no_group(tmp_path: Path) -> None:
    settings = load_settings(
        tmp_path, environment={**LWS, "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"}, overrides={}
    )
    assert settings.parallel.nnodes == 1
    assert "master_addr" not in settings.engine_arguments


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({**LWS, "LWS_GROUP_SIZE": "two"}, "LWS_GROUP_SIZE: expected a number of hosts, got 'two'"),
        ({**LWS, "LWS_WORKER_INDEX": "2"}, "LWS_WORKER_INDEX: expected less than LWS_GROUP_SIZE=2, got 2"),
        ({"DJL_CLUSTER_SIZE": "2"}, "option.master_addr: expected the leader's address with DJL_CLUSTER_SIZE=2"),
    ],
)
def test_messages_name_the_variable(tmp_path: Path, environment: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        load_settings(tmp_path, environment=environment, overrides={})
    assert message in refused.value.message
