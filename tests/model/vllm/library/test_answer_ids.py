"""The ids of an answer as vLLM's parsers take them."""

from __future__ import annotations

import time

from lmi.model.vllm.library.answer_ids import AnswerIds


def test_sums_are_those_of_lists() -> None:
    ids, plain = AnswerIds([5, 6]), [5, 6]
    for more in ([7], [], [5, 8], [9], [1, 2, 3], [7]):
        before, were = ids, plain
        ids, plain = ids + more, plain + more
        assert (ids, before) == (plain, were)
        for token_id in range(11):
            assert (token_id in ids, token_id in before) == (token_id in plain, token_id in were)
        assert ids[-1] == plain[-1]
        assert ids.index(6) == 1
        assert ids[1:] == plain[1:]


def test_a_long_answer_costs_as_much_a_token_as_a_short_one() -> None:
    """A list would take a hundred times as long for the last ones."""

    def spent(ids: AnswerIds) -> float:
        begun = time.thread_time()
        for token_id in range(10_000):
            ids = ids + [token_id % 100]  # noqa: RUF005 - as vLLM does
            assert -1 not in ids
        return time.thread_time() - begun

    assert min(spent(AnswerIds(range(200_000))) for _ in range(3)) < 20 * min(spent(AnswerIds()) for _ in range(3))
