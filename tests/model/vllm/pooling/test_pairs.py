"""How two texts share what room there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.pooling.pairs import PairTokenizer, shares

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


@pytest.mark.engine
@pytest.mark.parametrize(
    ("template", "separates", "render", "together"),
    [
        ("$A [SEP] $B:1 [SEP]:1", True, None, False),
        ("$A [SEP] $B:1 [SEP]:1", False, None, True),
        # As many special tokens for two texts as for one.
        ("$A $B:1 [SEP]:1", True, None, True),
        ("$A $B:1 [SEP]:1", True, lambda *_: "", False),
        ("$A $B:1 [SEP]:1", False, lambda *_: "", False),
    ],
)
def test_whether_nothing_parts_a_query_from_its_document(
    template: str, separates: bool, render: Any, together: bool
) -> None:
    from tokenizers import Tokenizer, models, processors

    fast = Tokenizer(models.WordLevel({"[UNK]": 0, "[SEP]": 1}, unk_token="[UNK]"))
    fast.post_processor = processors.TemplateProcessing(single="$A [SEP]", pair=template, special_tokens=[("[SEP]", 1)])
    tokenizer = SimpleNamespace(backend_tokenizer=fast, model_input_names=["input_ids"])
    assert PairTokenizer(tokenizer, 8, render, separates=separates).runs_together is together
