"""How two texts share what room there is."""

from __future__ import annotations

from lmi.model.vllm.pooling.pairs import shares

from ....kit.rows import each_row


@each_row(
    ("one", "other", "room", "kept"),
    [
        (3, 4, 7, (3, 4)), (3, 9, 7, (3, 4)), (9, 3, 7, (4, 3)), (9, 9, 8, (4, 4)), (9, 9, 7, (3, 4)),
        (10, 9, 7, (4, 3)), (0, 9, 5, (0, 5)), (9, 0, 5, (5, 0)), (4, 3, 6, (3, 3)),
    ],
)  # fmt: skip
def test_the_longer_one_is_cut_first(one: int, other: int, room: int, kept: tuple[int, int]) -> None:
    assert shares(one, other, room) == kept
