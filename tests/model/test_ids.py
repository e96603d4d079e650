"""Ids: each once, on whatever threads they are made."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor

from lmi.model.ids import new_hex, new_uuid


def test_no_id_comes_twice() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [*threads.map(lambda _: new_hex(), range(5000))]
    assert len({*made}) == 5000
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


def test_uuids_are_of_version_4() -> None:
    made = [uuid.UUID(new_uuid()) for _ in range(300)]
    assert {(one.version, one.variant) for one in made} == {(4, uuid.RFC_4122)}
    assert len({*made}) == 300
