"""The options of sessions: what they are by default, what they may be."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.options import settings_of
from lmi.model.options.session_options import SessionOptions

from ...kit.api.errors import OptionError
from ...kit.rows import each_row


def options(**given: str) -> SessionOptions:
    return settings_of(given, model_dir="/opt/ml/model").sessions


def test_there_are_sessions_unless_they_are_turned_off() -> None:
    assert options() == SessionOptions()
    assert options(enable_stateful_sessions="true") == SessionOptions()
    assert options(enable_stateful_sessions="false") == SessionOptions(enable_stateful_sessions=False)


def test_upstreams_defaults() -> None:
    assert (options().sessions_expiration, options().sessions_path, options().sessions_s3url) == (1200, None, None)


TAKEN: dict[str, dict[str, Any]] = {
    "sessions_path": {"/tmp/x": "/tmp/x", "sessions": "sessions"},
    "sessions_expiration": {"3600": 3600, "1": 1, "1.5": 1.5},
    "sessions_serve_expired": {"true": True},
    "sessions_max_number": {"1": 1},
    "sessions_max_bytes": {"0": 0, "1073741824": 1 << 30},
    "sessions_s3url": {"s3://bucket": "s3://bucket", "s3://bucket/a/b/": "s3://bucket/a/b"},
}


@each_row(("name", "values"), TAKEN.items(), ids=TAKEN)
def test_what_is_taken(name: str, values: dict[str, Any]) -> None:
    for text, value in values.items():
        assert getattr(options(**{name: text}), name) == value


IMAGES = {
    "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": ("false", "enable_stateful_sessions", False),
    "SAGEMAKER_SESSIONS_EXPIRATION": ("60", "sessions_expiration", 60),
    "SAGEMAKER_SESSIONS_PATH": ("/tmp/x", "sessions_path", "/tmp/x"),
}


@pytest.mark.parametrize("variable", IMAGES)
def test_variables_of_vllms_image(variable: str) -> None:
    text, name, value = IMAGES[variable]
    environment = {variable: text}
    found = settings_of({}, model_dir="/opt/ml/model", environment=environment).sessions
    assert getattr(found, name) == value


def test_a_wrong_variable_is_named() -> None:
    environment = {"SAGEMAKER_SESSIONS_EXPIRATION": "soon"}
    with pytest.raises(OptionError, match="SAGEMAKER_SESSIONS_EXPIRATION: expected a number of at least 1, got 'soon'"):
        settings_of({}, model_dir="/opt/ml/model", environment=environment)


REFUSED = {
    "enable_stateful_sessions": ["yes", "1"],
    "sessions_expiration": ["0", "-1", "soon", "nan"],
    "sessions_max_number": ["0", "1.5"],
    "sessions_max_bytes": ["-1", "1GB"],
    "sessions_s3url": ["bucket", "https://bucket/x", "s3://", "s3://b", "s3://Bucket/x", "s3://bucket/a\nb"],
}


@pytest.mark.parametrize(("name", "texts"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused(name: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(OptionError, match=f"option.{name}: expected "):
            options(**{name: text})


def test_a_name_that_is_almost_one_is_told() -> None:
    with pytest.raises(OptionError, match="sessions_expiration"):
        options(session_expiration="5")
