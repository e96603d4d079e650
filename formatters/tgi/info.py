"""What TGI's clients ask a server about itself (GET /info)."""

from __future__ import annotations

import msgspec

from ...model.engine import EngineInfo
from ...model.options import Settings
from ..base import Request, Response, encode
from ..common.kinds import TEXTS
from .parameters import MAX_BEST_OF

__all__ = ["Info", "info_page"]


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the limits (text-generation-inference, router/src/lib.rs, Info)."""

    model_id: str
    model_sha: str | None
    """The revision, where the model is a hub id and one was asked for."""
    model_pipeline_tag: str | None
    max_concurrent_requests: int
    """How many sequences are generated at once; more wait."""
    max_best_of: int = MAX_BEST_OF
    max_stop_sequences: int = TEXTS
    max_input_tokens: int
    max_total_tokens: int
    validation_workers: int = 1
    max_client_batch_size: int = 1
    router: str
    version: str
    sha: str | None = None
    docker_label: str | None = None


PIPELINE_TAGS = {"embed": "feature-extraction", "rank": "text-ranking", "classify": "text-classification"}
"""What the hub calls the tasks of models that generate no text."""


def info_page(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The model, its limits, and the engine in the router's place."""
    return Response(
        encode(
            Info(
                model_id=settings.model_id,
                model_sha=settings.revision,
                model_pipeline_tag=PIPELINE_TAGS.get(settings.task, "text-generation"),
                max_concurrent_requests=settings.max_rolling_batch_size,
                max_input_tokens=info.context - 1,
                max_total_tokens=info.context,
                router=info.engine,
                version=info.version,
            )
        )
    )
