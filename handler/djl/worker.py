"""What DJL calls: options first, then requests.

    handle(Input) --empty--------------> start the engine
                  --in an event loop---> AsyncBatcher.messages
                  --dynamic batches----> PlainBatch.answer, PlainBatch.answers
                  --otherwise----------> RollingBatch.step

Facts of the host: DJL Serving 0.36.0 and ai.djl.python 0.34.0 (RollingBatch, AsyncRequestManager,
djl_python.inputs/outputs).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any

from djl_python import Input, Output

from ...formatters import Request, Response, refusal
from ...formatters.base import encode
from ...model.errors import LmiError, OptionError, StartError, UnavailableError
from ...model.heap import freeze
from ...model.log_filters import configure
from ...model.options import Settings, settings_of
from ..adapters.registry import Entry, Registry
from ..scraping.exposition import Exposition
from ..scraping.port import listen
from ..secure_mode import secure_mode
from ..service import Service
from .adapters import AdapterCall, Done, answer, enter
from .convert import (
    BatchOutput,
    RawOutput,
    adapter_call_of,
    is_start,
    output_of_adapter_call,
    output_of_response,
    output_of_responses,
    request_of,
    requests_of_batch,
    requests_of_dynamic_batch,
)
from .host_watch import end_with_parent
from .metrics_log import Reporter
from .modes.async_mode import TRACKING_ID, AsyncBatcher, message_of_response
from .modes.call_limit import call_limit, start_limit
from .modes.dynamic_batch import PlainBatch
from .modes.rolling_batch import RollingBatch
from .reading import replace_reader
from .start_failure import end_host, listens
from .worker_number import claimed_number

__all__ = ["Worker", "worker"]

log = logging.getLogger(__name__)

START_PAUSES_S = (5.0, 10.0, 30.0, 60.0)
"""Seconds before each further start where the first one failed in async mode; the last one repeats."""


class Worker:
    """One DJL worker process: its model and the mode that DJL drives it in."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self._rolling: RollingBatch | None = None
        self._plain: PlainBatch | None = None
        self._async: AsyncBatcher | None = None
        self._failure: StartError | None = None

    @property
    def running(self) -> int:
        """How many generations run in the engine."""
        return self._service.engine.running if self._service else 0

    def handle(self, inputs: Input) -> Output | Coroutine[Any, Any, Any] | None:
        """See `lmi.handler.handle`."""
        return self._handle_async(inputs) if _in_event_loop() else self._handle_batch(inputs)

    def adapter_call(self, inputs: Input) -> Output | Coroutine[Any, Any, Any]:
        """See `lmi.handler.register_adapter`."""
        call = adapter_call_of(inputs)
        if _in_event_loop():
            return self._adapter_call_async(call, str(inputs.get_property(TRACKING_ID)))
        return output_of_adapter_call(*_answered(self._registry, call, self._entered(call)))

    async def _adapter_call_async(self, call: AdapterCall, tracking_id: str) -> AsyncIterator[RawOutput]:
        # Entered before any request that comes behind it is read; what takes its time holds up none of them.
        answering = asyncio.to_thread(_answered, self._registry, call, self._entered(call), patient=True)
        return _told(answering, tracking_id)

    @property
    def _registry(self) -> Registry | None:
        return self._service.adapters if self._service else None

    def _entered(self, call: AdapterCall) -> Entry | Done | None:
        if self._service is None:
            return 424, f"the model did not start: {self._failure}" if self._failure else "the model is not loaded yet"
        return enter(self._registry, call)

    def _handle_batch(self, inputs: Input) -> Output | None:
        if is_start(inputs):
            return self._start(inputs)
        if self._service is None:
            raise StartError("the model has not been initialized")
        if self._plain is None and self._rolling is None:
            if self._service.settings.dynamic_batch:
                self._plain = PlainBatch(self._service, call_limit(self._service.settings.host, os.environ))
            else:
                self._rolling = RollingBatch(self._service)
        if self._plain is not None:
            return self._answer_batch(self._plain, inputs)
        assert self._rolling is not None
        properties = inputs.get_properties()
        frames = self._rolling.step(requests_of_batch(inputs), reset=properties.get("reset_rollingbatch") == "true")
        return BatchOutput(frames)

    def _answer_batch(self, batch: PlainBatch, inputs: Input) -> Output:
        requests = requests_of_dynamic_batch(inputs)
        if requests is None:
            return output_of_response(batch.answer(request_of(inputs)), batch.next_call)
        return output_of_responses(batch.answers(requests))

    async def _handle_async(self, inputs: Input) -> AsyncIterator[RawOutput] | Output | None:
        if is_start(inputs):
            await self._start_in_time(inputs)
            return None
        tracking_id = str(inputs.get_property(TRACKING_ID))
        if self._service is None:
            error = UnavailableError(f"the model did not start: {self._failure}")
            return _refused(request_of(inputs), error, tracking_id)
        if self._async is None:
            self._async = AsyncBatcher(self._service)
        return _outputs(self._async, request_of(inputs), tracking_id)

    def _start(self, inputs: Input) -> Output | None:
        """Starts the engine. Of a failure Java shows `message` only, and 507 is its code for too little memory."""
        if self._service is not None:
            return None
        configure(own_process=False)
        end_with_parent()
        if (error := self._load(inputs)) is None:
            return None
        return Output().error(error.message, code=error.status, message=error.message)

    async def _start_in_time(self, inputs: Input) -> None:
        """Starts the engine, which Java is not to give up waiting for. Its own tasks on this loop go on meanwhile."""
        host = os.getppid()
        limit = start_limit(inputs.get_properties(), os.environ)
        starting = asyncio.create_task(asyncio.to_thread(self._start_async, inputs, host))
        done, _ = await asyncio.wait({starting}, timeout=limit)
        if done:
            starting.result()
            return
        message = f"the model was not loaded within {limit:g} seconds (DJL Serving's option.model_loading_timeout)"
        self._failure = StartError(message)
        if listens(host):
            log.error("requests are refused until the model is loaded: %s", message)
        else:
            log.error("start failed: %s", message)
            await asyncio.to_thread(end_host, host)

    def _start_async(self, inputs: Input, host: int) -> None:
        """Starts the engine; of a failure Java must not be told (start_failure.py)."""
        if self._service is not None:
            return
        configure(own_process=False)
        end_with_parent()
        self._failure = self._load(inputs)
        if self._failure is None:
            return
        if not listens(host):
            end_host(host)
        threading.Thread(target=self._start_again, args=(inputs,), name="lmi-start", daemon=True).start()

    def _start_again(self, inputs: Input) -> None:
        """Until the engine is up; what is wrong with an option will not pass."""
        for pause in itertools.chain(START_PAUSES_S, itertools.repeat(START_PAUSES_S[-1])):
            if isinstance(self._failure, OptionError):
                log.error("requests are refused with this cause until the model is loaded anew: %s", self._failure)
                return
            log.error("requests are refused with this cause; the next start is in %.0f s", pause)
            time.sleep(pause)
            if (failure := self._load(inputs)) is None:
                return
            self._failure = failure

    def _load(self, inputs: Input) -> StartError | None:
        """Brings the service up, or says why that failed."""
        try:
            formatters = _formatters(inputs.get_properties())
            # djl_python adds some of its own arguments, as numbers.
            properties = {name: str(value) for name, value in inputs.get_properties().items() if name not in formatters}
            settings = settings_of(properties, model_dir=properties.get("model_dir", "."), environment=os.environ)
            if secure := secure_mode(os.environ):
                secure.check_variables(settings, os.environ)
            service = Service(settings, host_formatters=formatters, given=properties)
            service.start()
        except StartError as refused:
            log.error("start failed: %s", refused)
            return refused
        except BaseException as unexpected:  # of Rust in libraries too
            log.exception("start failed")
            return StartError(f"{type(unexpected).__name__}: {unexpected}")
        self._service = service
        if not settings.dynamic_batch:
            # There a call is few messages, and the next one is watched for on the socket (call_limit.py).
            replace_reader()
        freeze()
        number = claimed_number()
        devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        log.info("worker %d: process %d%s", number, os.getpid(), f", devices {devices}" if devices else "")
        if settings.metrics_port is not None:
            listen(Exposition(service), settings.metrics_port + number)
        Reporter(service.metrics, service.engine, settings.metrics_interval, number).start()
        return None


def _answered(
    registry: Registry | None, call: AdapterCall, entered: Entry | Done | None, *, patient: bool = False
) -> Done:
    if isinstance(entered, tuple):
        return entered
    assert registry is not None
    return answer(registry, call, entered, patient=patient)


async def _told(answering: Awaitable[Done], tracking_id: str) -> AsyncIterator[RawOutput]:
    """The answer to a call about an adapter, with the mark of a last one: Java forgets the call then."""
    code, message = await answering
    response = Response(encode({"code": code, "message": message}), code)
    yield RawOutput(await message_of_response(response, tracking_id), lambda: None)


def _formatters(properties: Mapping[str, object]) -> dict[str, Callable[..., Any]]:
    """The functions that djl_python has found in model.py and hands over among the options."""
    names = ("input_formatter", "output_formatter")
    return {name: function for name in names if callable(function := properties.get(name))}


def _in_event_loop() -> bool:
    """Whether the caller runs on an event loop, as DJL's async mode does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@functools.cache
def worker() -> Worker:
    """This process's worker."""
    return Worker()


async def _outputs(batcher: AsyncBatcher, request: Request, tracking_id: str) -> AsyncIterator[RawOutput]:
    """What djl_python is to send, about this request and others."""
    async for message in batcher.messages(request, tracking_id):
        yield RawOutput(message, batcher.sent)


async def _refused(request: Request, error: LmiError, tracking_id: str) -> AsyncIterator[RawOutput]:
    """A request that comes while there is no service. Its options may be what is wrong: it is told by the defaults."""
    response = refusal(error, request, Settings(model_dir="", model_id="", model_name=""))
    yield RawOutput(await message_of_response(response, tracking_id), lambda: None)
