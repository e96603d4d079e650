"""The key-value cache that many sequences of a transformers model share.

    Prompts  --start, advance (in pieces)-->  a cache of their own  --join-->  rows of the running sequences' cache
                                                                    decode: one column more, a token for each row
                                                                    copy: several rows go on from one

      a  . . A A A A A      The rows of `Together` end in the same column: a step adds one column for all of them.
      b  . . . . B B B      What is left of a row is padding, which the attention mask hides; a row's positions count
      c  C C C C C C C      its own tokens only, so that none depends on which other rows there are.

transformers has continuous batching of its own (`generate_batch`), up to 5.23 with one seed and one `do_sample` for all
requests, no penalties, no top tokens and no look at the logits in between; hence this. It stands on the forward pass
and on the cache's layers only, which all decoder models share. A model whose cache is more than keys and values of
every token (recurrent states, say), or whose positions depend on the longest row, runs its sequences one by one
(`Solo`, solo.py).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from .forward import Forward, Prompts, new_cache, ropes
from .solo import Solo

__all__ = ["Rows", "Together", "rows_of"]

SLACK = 64
"""How many columns a cache is allocated beyond those in use, at least; a quarter of them if that is more."""


class Rows(Protocol):
    """The running sequences' cache."""

    together: bool
    """Whether several prompts can be computed at once, and a prompt in pieces."""

    def start(self, prompts: Sequence[Sequence[int]]) -> Prompts:
        """Prompts that are to become rows."""
        ...

    def join(self, prompts: Prompts, sources: Sequence[int]) -> None:
        """Adds a row for each of `sources`, indices of `prompts`, which are complete; an index may come twice."""
        ...

    def decode(self, tokens: Any) -> Any:
        """The logits [rows, words] after one more token in each row."""
        ...

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Each of the rows `targets` becomes what one of `sources` is; those beyond the last row, in order, are new.

        No row is both.
        """
        ...

    def leave(self, row: int) -> None:
        """Removes a row; the last one takes its place."""
        ...

    def need(self, lengths: Sequence[int], columns: int = 1) -> int:
        """How many tokens the cache would have to hold after `columns` steps with further rows of these lengths."""
        ...


_BY_LENGTH = {"dynamic", "longrope"}
"""Rotary embeddings that transformers stretches for all rows of a pass by the longest of them."""


def rows_of(forward: Forward, budget: int, context: int) -> Rows:
    """The rows for a model; `budget` is how many tokens their cache may hold, padding included."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    config = forward.model.config
    text = config.get_text_config(decoder=True)
    for rope in ropes(config):
        known = int(rope.get("original_max_position_embeddings") or getattr(text, "max_position_embeddings", 0) or 0)
        if rope["rope_type"] in _BY_LENGTH and context > known:
            return Solo(forward)
    layers = new_cache(forward.model).layers
    plain = all(type(layer) in {DynamicLayer, DynamicSlidingWindowLayer} for layer in layers)
    return Together(forward, budget) if layers and plain else Solo(forward)


@functools.cache
def _layer_class() -> Any:
    """A cache layer that has room for columns to come: transformers' own copies everything for each token.

    It keeps all tokens where attention is to a window of them, too: the mask hides what is outside.
    """
    from transformers.cache_utils import DynamicLayer

    class RoomyLayer(DynamicLayer):  # type: ignore[misc]
        def __init__(self, columns: int = 0) -> None:
            super().__init__()
            self.columns = columns
            self.room: tuple[Any, ...] | None = None

        def update(self, key_states: Any, value_states: Any, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            used = self.get_seq_length()
            rows, _, new, _ = key_states.shape
            if self.room is None:
                self.room = tuple(
                    part.new_zeros((rows, part.shape[1], max(self.columns, new), part.shape[3]))
                    for part in (key_states, value_states)
                )
            for room, part in zip(self.room, (key_states, value_states), strict=True):
                room[:rows, :, used : used + new] = part
            self.show(rows, used + new)
            return self.keys, self.values

        def begin_like(self, other: Any) -> None:
            """Takes type and shape from another layer; without rows and columns yet."""
            if other.is_initialized:
                self.lazy_initialization(other.keys, other.values)
                self.room = tuple(part.new_zeros((0, part.shape[1], 0, part.shape[3])) for part in other.room)

        def show(self, rows: int, used: int) -> None:
            """Makes so many rows and columns of the room the layer's contents."""
            if self.room is not None:
                self.keys, self.values = (room[:rows, :, :used] for room in self.room)

        def move(self, rows: int, columns: int, kept: int, used: int, shift: int) -> None:
            """New room; `kept` rows of `used` columns go into it, `shift` columns to the right (or to the left)."""
            old, self.room = self.room, None
            if old is not None:
                self.room = tuple(part.new_zeros((rows, part.shape[1], columns, part.shape[3])) for part in old)
                for new, part in zip(self.room, old, strict=True):
                    new[:kept, :, max(shift, 0) : used + shift] = part[:kept, :, max(-shift, 0) : used]

    return RoomyLayer


class Together:
    """Rows in one cache, which a step computes all at once."""

    together = True

    def __init__(self, forward: Forward, budget: int) -> None:
        self._forward = forward
        self._budget = budget
        self._cache: Any = None
        self._starts: list[int] = []
        self._width = 0
        self._rows_room = 0
        self._columns_room = 0
        self._shape: tuple[Any, Any] | None = None

    def start(self, prompts: Sequence[Sequence[int]]) -> Prompts:
        """Prompts with a cache of their own."""
        return Prompts(prompts, self._new(max(map(len, prompts))), self._forward.device)

    def join(self, prompts: Prompts, sources: Sequence[int]) -> None:
        """Copies the prompts' cache into rows of this one."""
        before = len(self._starts)
        lengths = [prompts.lengths[source] for source in sources]
        if self._cache is None:
            self._cache = self._new(0)
            for layer, theirs in zip(self._cache.layers, prompts.cache.layers, strict=True):
                layer.begin_like(theirs)
        if before + len(sources) > self._rows_room or max(lengths) > self._width:
            self._make_room(before + len(sources), max(lengths))
        width = self._width
        for layer, theirs in zip(self._cache.layers, prompts.cache.layers, strict=True):
            for room, part in zip(layer.room or (), (theirs.keys, theirs.values), strict=False):
                for row, (source, length) in enumerate(zip(sources, lengths, strict=True), before):
                    # What another row left there may be infinite, which no mask would hide.
                    room[row, :, : width - length] = 0
                    room[row, :, width - length : width] = part[source, :, prompts.width - length :]
        self._starts += [width - length for length in lengths]
        self._show()

    def decode(self, tokens: Any) -> Any:
        """One column more."""
        import torch

        if self._width + 1 > self._columns_room:
            self._make_room(len(self._starts))
        device = self._forward.device
        if self._shape is None:
            self._shape = (
                torch.tensor(self._starts, device=device)[:, None],
                torch.arange(self._columns_room, device=device),
            )
        starts, columns = self._shape
        mask = (columns[: self._width + 1] >= starts).long()
        logits = self._forward(tokens.to(device)[:, None], mask, self._width - starts, self._cache)
        self._width += 1
        return logits[:, -1]

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Columns that are in use, padding included."""
        import torch

        rows = max(len(self._starts), max(targets) + 1)
        if rows > self._rows_room:
            self._make_room(rows)
        self._starts += [0] * (rows - len(self._starts))
        for source, target in zip(sources, targets, strict=True):
            self._starts[target] = self._starts[source]
        device = self._forward.device
        taken, given = (torch.tensor(indices, device=device) for indices in (targets, sources))
        for layer in self._cache.layers:
            for room in layer.room or ():
                here = (taken.to(room.device), given.to(room.device))
                room[here[0], :, : self._width] = room[here[1], :, : self._width]
        self._show()

    def leave(self, row: int) -> None:
        """The last row is copied over the one that leaves."""
        last = len(self._starts) - 1
        if last == 0:
            self._cache, self._starts, self._width = None, [], 0
            self._rows_room = self._columns_room = 0
            self._shape = None
            return
        if row != last:
            for layer in self._cache.layers:
                for room in layer.room or ():
                    room[row] = room[last]
            self._starts[row] = self._starts[last]
        self._starts.pop()
        self._show()
        if min(self._starts) > max(SLACK, self._width // 2):
            self._make_room(len(self._starts))

    def need(self, lengths: Sequence[int], columns: int = 1) -> int:
        """Every row is as long as the longest."""
        rows = len(self._starts) + len(lengths)
        return rows * (max([self._longest, *lengths]) + columns) if rows else 0

    @property
    def _longest(self) -> int:
        return self._width - min(self._starts, default=self._width)

    def _new(self, columns: int) -> Any:
        cache = new_cache(self._forward.model)
        cache.layers = [_layer_class()(columns) for _ in cache.layers]
        return cache

    def _make_room(self, rows: int, longest: int = 0) -> None:
        """Allocates anew for so many rows as long as `longest`, without the columns that all rows leave free.

        Whether the budget allows it, the caller has asked; only what goes beyond the need is cut to it here.
        """
        width = max(self._longest, longest)
        columns = max(width + 1, min(width + max(SLACK, width // 4), self._budget // rows))
        shift = width - self._width
        for layer in self._cache.layers:
            layer.move(rows, columns, len(self._starts), self._width, shift)
        self._starts = [start + shift for start in self._starts]
        self._width = width
        self._rows_room, self._columns_room = rows, columns
        self._show()

    def _show(self) -> None:
        """The rows or columns have changed."""
        for layer in self._cache.layers:
            layer.show(len(self._starts), self._width)
        self._shape = None
