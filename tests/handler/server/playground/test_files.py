"""The page's files: which are sent, to whom, and with which headers."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import httpx
import pytest

from lmi.handler.server.playground.files import FILES, FOLDER

from ....kit.api.handler import Access, allowed_names, application, package_model, started_service
from ....kit.rows import each_row
from ....kit.user_code.engine import ScriptedEngine

LAPTOP = allowed_names(["127.0.0.1"], [])
LONGEST_FILE = 300
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "blob:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client(access: Access | None = None, *, playground: bool = True) -> httpx.AsyncClient:
    app = application(started_service(ScriptedEngine()), access, playground=playground)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8080")


def path_of(name: str) -> str:
    return "/" if name == "index.html" else f"/playground/{name}"


async def test_every_file_is_sent_as_what_it_is() -> None:
    async with client() as http:
        for name, kind in FILES.items():
            answer = await http.get(path_of(name))
            assert (answer.status_code, answer.content) == (200, (FOLDER / name).read_bytes())
            assert answer.headers["content-type"].split(";")[0] == kind
            policy = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))
            assert policy == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_one_that_has_not_changed_is_not_sent_again() -> None:
    async with client() as http:
        first = await http.get("/playground/main.js")
        assert first.headers["cache-control"] == "no-cache"
        again = await http.get("/playground/main.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = await http.get("/playground/page.js", headers={"If-None-Match": first.headers["etag"]})
        assert other.status_code == 200


@each_row(
    "path",
    ["/playground/", "/playground/files.py", "/playground/../files.py", "/playground/%2e%2e/files.py",
     "/playground/..%2ffiles.py", "/playground/page/main.js", "/playground//etc/passwd", "/playground/main.js%00"],
)  # fmt: skip
async def test_nothing_else_is_sent(path: str) -> None:
    async with client() as http:
        assert (await http.get(path)).status_code == 404


async def test_what_stands_at_its_place_stays() -> None:
    """POST / is TGI's, and without the page GET / is nobody's."""
    async with client(Access("a key")) as http, client(playground=False) as bare:
        assert (await http.post("/", json={"inputs": "Hello"})).json()["error_type"] == "unauthorized"
        assert (await bare.get("/")).status_code == 405
        assert (await bare.get("/playground/main.js")).status_code == 404
        assert (await bare.get("/playground/setup.json")).status_code == 404


async def test_the_key_is_needed_for_what_tells_of_the_model() -> None:
    async with client(Access("a key", LAPTOP)) as http:
        for name in FILES:
            assert (await http.get(path_of(name))).status_code == 200
        assert (await http.get("/playground/setup.json")).status_code == 401
        told = await http.get("/playground/setup.json", headers={"Authorization": "Bearer a key"})
        assert (told.status_code, told.headers["cache-control"]) == (200, "no-store")


async def test_other_sites_may_link_to_it_and_no_more() -> None:
    async with client(Access(names=LAPTOP)) as http:
        link = {"Sec-Fetch-Site": "cross-site"}
        assert (await http.get("/", headers=link)).status_code == 200
        assert (await http.get("/playground/setup.json", headers=link)).status_code == 403
        assert (await http.get("/", headers={"Host": "rebound.example"})).status_code == 403
        assert (await http.get("/", headers={"Origin": "https://other.example"})).status_code == 403
        assert (await http.get("/")).headers["cross-origin-resource-policy"] == "same-origin"


def test_the_list_is_the_folder() -> None:
    assert {one.name for one in FOLDER.iterdir()} == set(FILES)


@each_row("name", FILES)
def test_a_file_is_short_and_asks_for_nothing_elsewhere(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert len(text.splitlines()) < LONGEST_FILE
    elsewhere = re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]+\.[a-z]{2,}", text)
    assert [one for one in elsewhere if one != "http://www.w3.org"] == []
    # The policy forbids it, and a browser would say nothing.
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"|innerHTML|eval\(", text)


def test_what_is_imported_is_there() -> None:
    for name in FILES:
        for other in re.findall(r'from "\./([^"]+)"', (FOLDER / name).read_text("utf-8")):
            assert other in FILES


def test_an_archive_for_the_container_has_none_of_it(tmp_path: Path) -> None:
    """Where the files are not installed there is no page; DJL Serving shows none."""
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\n")
    package_model(tmp_path, tmp_path / "model.tar.gz")
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        names = archive.getnames()
    assert "lmi/handler/server/playground/files.py" in names
    assert not any("/page" in name for name in names)
