"""docs/kubernetes/: each manifest is what the published types of Kubernetes and LeaderWorkerSet say, and fits the rest.

main.go, beside this file, decodes them: it is built once, into .cache/manifests/, which needs Go and fetches modules.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..kit.api.errors import OptionError
from ..kit.api.handler import check_model_dir as check
from ..kit.packages import locked, missing
from ..kit.paths import CACHE, DOCS, TESTS
from ..kit.rows import each_row

SOURCES = TESTS / "manifests"
MANIFESTS = sorted((DOCS / "kubernetes").glob("*.yaml"))
DEPLOYMENT = DOCS / "kubernetes" / "deployment.yaml"
LEADER_WORKER_SET = DOCS / "kubernetes" / "leader-worker-set.yaml"
OF_DJL = {"MODEL_LOADING_TIMEOUT", "SERVING_RETRY_THRESHOLD"}
"""DJL Serving's own variables that the manifests may set (PyEnv; ModelInfo)."""
OF_ENGINE = {"VLLM_HOST_IP"}

pytestmark = pytest.mark.once


@pytest.fixture(scope="module", autouse=True)
def _go() -> None:
    """These tests need it: skipped, or failed where LMI_REQUIRE asks for it."""
    if shutil.which("go") is None:
        missing("go is not on PATH", "go")


@functools.cache
def decoder() -> Path:
    """The program, built where its sources have changed."""
    files = [SOURCES / name for name in ("go.mod", "go.sum", "main.go")]
    program = CACHE / "manifests" / hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    with locked(program.parent / "lock"):
        if not program.exists():
            command = ["go", "build", "-trimpath", "-o", str(program), "."]
            done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=900, check=False)
            assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr}"
    return program


def decode(*paths: Path) -> tuple[list[dict[str, Any]], str]:
    """The documents of manifests, and what is wrong with them."""
    done = subprocess.run([decoder(), *paths], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (1 if done.stderr else 0)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@functools.cache
def documents(path: Path) -> list[dict[str, Any]]:
    found, faults = decode(path)
    assert not faults
    return found


def of_kind(path: Path, kind: str) -> list[dict[str, Any]]:
    return [document for document in documents(path) if document["kind"] == kind]


def pods(path: Path) -> dict[str, dict[str, Any]]:
    """The templates of pods, by what they are."""
    found: dict[str, dict[str, Any]] = {}
    for one in of_kind(path, "Deployment"):
        found["deployment"] = one["spec"]["template"]
    for one in of_kind(path, "LeaderWorkerSet"):
        template = one["spec"]["leaderWorkerTemplate"]
        found |= {"leader": template["leaderTemplate"], "follower": template["workerTemplate"]}
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def variables(path: Path, pod: dict[str, Any]) -> dict[str, str]:
    """The environment of a pod's container, with what LeaderWorkerSet adds; what a field gives is its path."""
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind(path, "ConfigMap")}
    found: dict[str, str] = {}
    for source in container(pod).get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]
    for one in container(pod).get("env", []):
        found[one["name"]] = one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"]
    return found


def each_pod(*names: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in MANIFESTS:
        for name, pod in pods(path).items():
            if not names or name in names:
                yield path, pod


def test_there_are_manifests() -> None:
    kinds = [document["kind"] for path in MANIFESTS for document in documents(path)]
    assert {"Deployment", "LeaderWorkerSet", "Service", "ConfigMap"} <= set(kinds)
    assert [name for path in MANIFESTS for name in pods(path)] == ["deployment", "leader", "follower"]


@each_row(
    ("right", "wrong", "fault"),
    [
        ("readinessProbe:", "readynessProbe:", 'unknown field "readynessProbe"'),
        ("terminationGracePeriodSeconds: 150", "terminationGracePeriodSeconds: long", "cannot unmarshal string"),
        ("replicas: 1\n", "replicas: 1\n  replicas: 1\n", 'key "replicas" already set'),
        ("kind: Service\n", "kind: Servise\n", "no type that is known here"),
        ("  name: ", "  named: ", 'unknown field "named"'),
    ],
)
def test_a_wrong_manifest_is_refused(right: str, wrong: str, fault: str, tmp_path: Path) -> None:
    for path in MANIFESTS:
        text = path.read_text()
        assert right in text
        (tmp_path / "wrong.yaml").write_text(text.replace(right, wrong))
        assert fault in decode(tmp_path / "wrong.yaml")[1]


def test_services_lead_to_pods() -> None:
    for path in MANIFESTS:
        (service,) = of_kind(path, "Service")
        # LeaderWorkerSet makes a headless Service of its own name, and labels its pods.
        names = [one["metadata"]["name"] for one in of_kind(path, "LeaderWorkerSet")]
        assert service["metadata"]["name"] not in names
        selector = dict(service["spec"]["selector"])
        if names:
            assert selector.pop("leaderworkerset.sigs.k8s.io/name") in names
        found = [
            pod for pod in pods(path).values() if selector.items() <= pod.get("metadata", {}).get("labels", {}).items()
        ]
        assert len(found) == 1
        ports = {port["name"]: port["containerPort"] for port in container(found[0])["ports"]}
        assert ports[service["spec"]["ports"][0]["targetPort"]] == 8080
    for one in of_kind(DEPLOYMENT, "Deployment"):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == labels


def test_pods_that_serve_are_asked_and_may_end_their_requests() -> None:
    for path, pod in each_pod("deployment", "leader"):
        main = container(pod)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert main[probe]["httpGet"] == {"path": "/ping", "port": "http"}
        startup = main["startupProbe"]
        loading = int(variables(path, pod)["MODEL_LOADING_TIMEOUT"])
        assert startup["periodSeconds"] * startup["failureThreshold"] >= loading + 60
    for _, pod in each_pod():
        command, seconds = container(pod)["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        assert pod["spec"]["terminationGracePeriodSeconds"] >= int(seconds) + 20


def test_pods_have_devices_shared_memory_and_the_model() -> None:
    for _, pod in each_pod():
        main = container(pod)
        assert int(main["resources"]["limits"]["nvidia.com/gpu"]) >= 1
        mounted = {mount["mountPath"]: mount["name"] for mount in main["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes[mounted["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
        assert mounted["/opt/ml/model"] in volumes
        assert pod["spec"]["enableServiceLinks"] is False
        for init in pod["spec"].get("initContainers", []):
            assert init["volumeMounts"] == [{"name": mounted["/opt/ml/model"], "mountPath": "/opt/ml/model"}]


def test_leader_and_follower_agree() -> None:
    leader, follower = (pods(LEADER_WORKER_SET)[name] for name in ("leader", "follower"))
    assert variables(LEADER_WORKER_SET, leader) == variables(LEADER_WORKER_SET, follower)
    for name in ("image", "resources", "volumeMounts", "env", "envFrom"):
        assert container(leader)[name] == container(follower)[name]
    assert leader["spec"]["volumes"] == follower["spec"]["volumes"]
    # The leader is what the image starts; a follower must not end before the leader has.
    assert "command" not in container(leader)
    assert container(follower)["command"] == ["lmi", "follow", "/opt/ml/model"]
    assert follower["spec"]["terminationGracePeriodSeconds"] >= leader["spec"]["terminationGracePeriodSeconds"]
    (group,) = of_kind(LEADER_WORKER_SET, "LeaderWorkerSet")
    assert group["spec"]["startupPolicy"] == "LeaderCreated"
    size = group["spec"]["leaderWorkerTemplate"]["size"]
    assert variables(LEADER_WORKER_SET, leader)["OPTION_PIPELINE_PARALLEL_SIZE"] == str(size)


@pytest.mark.parametrize(("path", "name"), [(DEPLOYMENT, "deployment"), (LEADER_WORKER_SET, "leader")])
def test_the_options_are_accepted(path: Path, name: str, tmp_path: Path) -> None:
    """As `lmi check` sees them."""
    pod = pods(path)[name]
    given = variables(path, pod)
    options = {variable for variable in given if variable.startswith("OPTION_")}
    assert given.keys() - options <= OF_DJL | OF_ENGINE
    lws = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "a.b.c"} if name == "leader" else {}
    said = check(tmp_path, {}, environment={**given, **lws}, files=False)
    assert said[0] == "options: good; vllm, async mode"
    assert "entry point: lmi.handler" in said
    assert not [line for line in said if line.startswith(("note: option.", "warning: option."))]
    wrong = {**given, "OPTION_PIPELINE_PARALEL_SIZE": "2"}
    with pytest.raises(OptionError, match="OPTION_PIPELINE_PARALEL_SIZE"):
        check(tmp_path, {}, environment=wrong, files=False)


@pytest.mark.engine
def test_vllm_knows_its_variables() -> None:
    import vllm.envs

    assert vllm.envs.environment_variables.keys() >= OF_ENGINE


def test_the_page_names_every_manifest() -> None:
    text = (DOCS / "kubernetes.md").read_text(encoding="utf-8")
    assert {path.name for path in MANIFESTS} <= set(re.findall(r"kubernetes/([\w-]+\.yaml)", text))
