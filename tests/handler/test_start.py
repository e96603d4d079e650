"""A start that fails names the variable of the environment that is to blame, and no option that nobody wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..kit.api.errors import OptionError
from ..kit.api.handler import Service
from ..kit.api.options import load_settings
from ..kit.api.types import EngineInfo
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine


@each_row(
    ("environment", "said"),
    [
        ({"OPTION_CONTENT_FILTER": "nowhere:judge"}, "OPTION_CONTENT_FILTER: 'nowhere:judge': there is no"),
        ({"SM_VLLM_CHAT_TEMPLATE": "lost.jinja"}, "SM_VLLM_CHAT_TEMPLATE: "),
        ({"LORA_ADAPTERS": "a=/nowhere/a"}, "LORA_ADAPTERS: a: /nowhere/a does not exist"),
    ],
)  # fmt: skip
def test_the_variable_is_named(environment: dict[str, str], said: str, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environment=environment, overrides={})
    with pytest.raises(OptionError) as caught:
        Service(settings, RefusingEngine()).start()
    assert caught.value.message.startswith(said)


def test_a_follower_serves_nobody(tmp_path: Path) -> None:
    environment = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "leader"}
    settings = load_settings(tmp_path, environment=environment, overrides={})
    with pytest.raises(OptionError) as caught:
        Service(settings, ScriptedEngine()).start()
    assert caught.value.message == "LWS_WORKER_INDEX: expected 0, the leader, got 1: here run lmi follow"


class RefusingEngine(ScriptedEngine):
    """An engine that says of its options what the real one would."""

    def start(self) -> EngineInfo:
        raise OptionError.of("chat_template", "the file lost.jinja is not there")
