"""What DJL Serving says of adapters: one Input each, on the connection of the requests.

Facts of the host: DJL Serving 0.36.0 (PyAdapter sends it) and djl_python (adapter_manager_mixin answers it).

    property handler   register_adapter, update_adapter or unregister_adapter
    properties         name, alias (may be missing), src (not where one is unregistered)
    content items      preload, pin: what the management API was told, as text; none for the folder `adapters`

Java passes on code and message of the answer in rolling batch and dynamic batch. In async mode it has said "OK" before
it asks, so that requests are told what became of it; a code of 300 and more at a worker's start ends the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.errors import AdapterError, LmiError
from ..adapters.registry import Entry, Registry

__all__ = ["AdapterCall", "Done", "answer", "enter"]

log = logging.getLogger(__name__)

Done = tuple[int, str]
"""Code and message."""


@dataclass(frozen=True, slots=True)
class AdapterCall:
    """What Java asks for."""

    function: str
    name: str
    alias: str | None = None
    source: str = ""
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def switch(self, name: str) -> bool | None:
        """`preload` or `pin`, None where it is not said; raises AdapterError."""
        given = self.options.get(name, "").lower()
        if given not in {"", "true", "false"}:
            raise AdapterError(f"{name}: expected true or false, got {given!r}", name)
        return given == "true" if given else None

    @property
    def shown(self) -> str:
        """What messages call the adapter."""
        return self.alias or self.name


def enter(registry: Registry | None, call: AdapterCall) -> Entry | Done | None:
    """What is done of a call at once, so that requests behind it see it: the rest is `answer`'s. Raises nothing."""
    try:
        if registry is None:
            raise AdapterError("LoRA is not enabled (option.enable_lora)")
        if call.function == "register_adapter":
            if call.name.startswith("."):
                # Java takes every entry of the folder for an adapter.
                return 200, f"{call.name} is no adapter and is ignored"
            preload, pin = call.switch("preload"), call.switch("pin")
            return registry.enter(call.name, call.source, alias=call.alias, preload=preload is not False, pin=bool(pin))
        if call.function == "unregister_adapter":
            registry.unregister(call.name)
            return 200, f"Adapter {call.shown} unregistered"
    except LmiError as error:
        return _refused(call, error)
    except Exception as error:
        log.exception("%s of %s failed", call.function, call.name)
        return _refused(call, AdapterError(f"{type(error).__name__}: {error}"))
    return None


def answer(registry: Registry, call: AdapterCall, entered: Entry | None, *, patient: bool = False) -> Done:
    """The rest of a call, which may wait for the engine; a `patient` one also for one that is being rebuilt, as in
    async mode, where Java has said already that all is well. Raises nothing.
    """
    try:
        if entered is not None:
            try:
                registry.load(entered, patient=patient)
            except LmiError as error:
                if entered.source != "folder":
                    raise
                # What is broken in the folder has been judged at the start: it is served without it.
                return 200, f"Adapter {call.shown} could not be loaded: {error.message}"
            return 200, f"Adapter {call.shown} registered"
        registry.update(call.name, call.source or None, preload=call.switch("preload"), pin=call.switch("pin"))
        return 200, f"Adapter {call.shown} updated"
    except LmiError as error:
        return _refused(call, error)
    except Exception as error:
        log.exception("%s of %s failed", call.function, call.name)
        return _refused(call, AdapterError(f"{type(error).__name__}: {error}"))


def _refused(call: AdapterCall, error: LmiError) -> Done:
    log.error("%s of %s failed: %s", call.function, call.name, error)
    # djl_python knows these two (lmi_vllm).
    return (507 if error.status == 507 else 424), error.message
