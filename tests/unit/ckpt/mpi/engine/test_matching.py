"""Posted receives against unexpected messages: MPI's matching rules."""

import pickle
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.engine import matching
from ckpt.mpi.engine.matching import Context, Matcher
from ckpt.mpi.engine.operations import Receive

CONTEXT = 8


def message(source: int, tag: int, number: int, context: int = CONTEXT) -> bytes:
    return envelope.pack(envelope.EAGER, source, tag, context) + str(number).encode()


def number_of(data: Any) -> int:
    return int(bytes(data[envelope.SIZE :]))


class Oracle:
    """The rules in the dumbest form: two lists, searched from the front."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, int, int]] = []
        self.posted: list[tuple[int, int, int, int]] = []

    @staticmethod
    def accepts(want: tuple[int, int, int], have: tuple[int, int, int]) -> bool:
        context, source, tag = want
        return context == have[0] and source in (ANY_SOURCE, have[1]) and tag in (ANY_TAG, have[2])

    def arrive(self, context: int, source: int, tag: int, number: int) -> int | None:
        for entry in self.posted:
            if self.accepts(entry[:3], (context, source, tag)):
                self.posted.remove(entry)
                return entry[3]
        self.messages.append((context, source, tag, number))
        return None

    def receive(self, context: int, source: int, tag: int, name: int) -> int | None:
        for entry in self.messages:
            if self.accepts((context, source, tag), entry[:3]):
                self.messages.remove(entry)
                return entry[3]
        self.posted.append((context, source, tag, name))
        return None

    def withdraw(self, name: int) -> bool:
        for entry in self.posted:
            if entry[3] == name:
                self.posted.remove(entry)
                return True
        return False


contexts = st.sampled_from([CONTEXT, CONTEXT + 4])
sources = st.integers(0, 2)
tags = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), contexts, sources, tags),
        st.tuples(st.just("receive"), contexts, sources | st.just(ANY_SOURCE), tags | st.just(ANY_TAG)),
        st.tuples(st.just("withdraw"), st.integers(0, 30)),
        st.tuples(st.just("image")),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("no order")),
    ),
    max_size=60,
)


@pytest.mark.parametrize("scanned", [0, 4, matching.SCAN_CHANNELS])
def test_every_match_is_the_one_the_rules_demand(monkeypatch: pytest.MonkeyPatch, scanned: int) -> None:
    """However many channels a context must have before an order across them is kept."""
    monkeypatch.setattr(matching, "SCAN_CHANNELS", scanned)
    compare_with_the_oracle()


@settings(max_examples=200, deadline=None)
@given(steps)
def compare_with_the_oracle(script: list[tuple[Any, ...]]) -> None:
    matcher, oracle = Matcher(), Oracle()
    receives: dict[int, Receive] = {}
    for number, step in enumerate(script):
        match step:
            case ("arrive", context, source, tag):
                _, receive = matcher.arrive(
                    source, source, tag, context, message(source, tag, number, context)
                )
                expected = oracle.arrive(context, source, tag, number)
                assert receive is (None if expected is None else receives[expected])
            case ("receive", context, source, tag):
                receives[number] = receive = Receive(context, source, tag)
                found = matcher.context(context)
                channel = matcher.find(found, source, tag)
                expected = oracle.receive(context, source, tag, number)
                if channel is None:
                    assert expected is None
                    matcher.post(found, receive, max(source, 0))
                else:
                    assert number_of(matcher.pop(channel)) == expected
            case ("withdraw", name) if name in receives:
                assert matcher.withdraw(receives[name]) == oracle.withdraw(name)
            case ("image",):
                matcher, receives = pickle.loads(pickle.dumps((matcher, receives), 5))
            case ("sweep",):
                for found in matcher.contexts.values():
                    matcher._sweep(found)
            case ("no order",) if not oracle.messages:
                for found in matcher.contexts.values():
                    found.keep_no_order()
        assert matcher.posted == len(oracle.posted)
        for found in matcher.contexts.values():
            check_what_may_be_taken_at_once(found)


def check_what_may_be_taken_at_once(context: matching.Context) -> None:
    """`direct` names a channel only where it alone answers, and none while an order has to be kept."""
    if context.order is not None:
        assert not context.direct
    else:
        assert context.direct.items() >= context.channels.items()
    for (source, tag), channel in context.direct.items():
        assert [channel] == [
            each
            for each in context.channels.values()
            if source in (ANY_SOURCE, each.source) and tag in (ANY_TAG, each.tag)
        ]


def test_messages_of_one_source_and_tag_are_received_in_order() -> None:
    matcher = Matcher()
    for number in range(5):
        matcher.arrive(1, 1, 0, CONTEXT, message(1, 0, number))
    context = matcher.context(CONTEXT)
    taken = []
    for source, tag in [(1, 0), (ANY_SOURCE, 0), (1, ANY_TAG), (ANY_SOURCE, ANY_TAG), (1, 0)]:
        channel = matcher.find(context, source, tag)
        assert channel is not None
        taken.append(number_of(matcher.pop(channel)))
    assert taken == [0, 1, 2, 3, 4]


def test_a_wildcard_serves_sources_in_the_order_of_arrival_so_none_starves() -> None:
    matcher = Matcher()
    context = matcher.context(CONTEXT)
    taken = []
    for number in range(30):
        matcher.arrive(0, 0, 0, CONTEXT, message(0, 0, number))
        if number % 10 == 0:
            matcher.arrive(1, 1, 0, CONTEXT, message(1, 0, 100 + number))
    while (channel := matcher.find(context, ANY_SOURCE, 0)) is not None:
        matcher.pop(channel)
        taken.append(channel.source)
    assert [at for at, source in enumerate(taken) if source == 1] == [1, 12, 23]


def test_a_wildcard_to_which_one_channel_answers_costs_one_lookup_until_there_is_a_second() -> None:
    matcher = Matcher()
    context = matcher.context(CONTEXT)
    matcher.arrive(0, 0, 5, CONTEXT, message(0, 5, 1))
    channel = matcher.find(context, 0, ANY_TAG)
    assert channel is context.direct[0, ANY_TAG]
    matcher.arrive(0, 0, 6, CONTEXT, message(0, 6, 2))
    assert (0, ANY_TAG) not in context.direct
    for expected in (1, 2):
        found = matcher.find(context, 0, ANY_TAG)
        assert found is not None
        assert number_of(matcher.pop(found)) == expected


@pytest.mark.parametrize(("source", "tag", "expected"), [(1, ANY_TAG, 2000), (ANY_SOURCE, 50, 4000)])
def test_a_wildcard_looks_at_no_more_messages_than_there_are_channels(
    source: int, tag: int, expected: int
) -> None:
    """Two ranks send thousands of messages under twenty tags each; the second one's are received first."""

    class Counting(OrderedDict[int, Any]):
        looked = 0

        def values(self) -> Any:
            for value in super().values():
                self.looked += 1
                yield value

    matcher = Matcher()
    context = matcher.context(CONTEXT)
    for number in range(4000):
        matcher.arrive(
            number // 2000, number // 2000, number % 20, CONTEXT, message(number // 2000, 0, number)
        )
    matcher.arrive(0, 0, 50, CONTEXT, message(0, 50, 4000))
    context.order = order = Counting(matcher._order(context))
    channel = matcher.find(context, source, tag)
    assert channel is not None and number_of(matcher.pop(channel)) == expected
    assert order.looked <= len(context.channels)


def test_an_earlier_wildcard_wins_over_a_later_exact_receive() -> None:
    matcher = Matcher()
    context = matcher.context(CONTEXT)
    wild, exact = Receive(CONTEXT, ANY_SOURCE, 0), Receive(CONTEXT, 1, 0)
    matcher.post(context, wild, 0)
    matcher.post(context, exact, 1)
    assert matcher.arrive(1, 1, 0, CONTEXT, message(1, 0, 0))[1] is wild
    assert matcher.arrive(1, 1, 0, CONTEXT, message(1, 0, 1))[1] is exact


def test_ever_new_tags_do_not_fill_the_memory() -> None:
    matcher = Matcher()
    context = matcher.context(CONTEXT)
    for tag in range(10 * matching.CHANNELS_MIN):
        matcher.arrive(0, 0, tag, CONTEXT, message(0, tag, tag))
        channel = matcher.find(context, 0, tag)
        assert channel is not None
        matcher.pop(channel)
    assert len(context.channels) <= matching.CHANNELS_MIN + 1
    assert len(matcher.by_envelope) == len(context.channels)


def test_forgetting_a_context_takes_its_receives_along() -> None:
    matcher = Matcher()
    matcher.post(matcher.context(CONTEXT), Receive(CONTEXT, 0, 0), 0)
    matcher.post(matcher.context(CONTEXT), Receive(CONTEXT, ANY_SOURCE, 0), 0)
    matcher.forget(CONTEXT)
    assert matcher.posted == 0
    assert not matcher.by_envelope


def test_a_context_that_two_threads_ask_for_first_is_one_context() -> None:
    """The first message of a communicator was lost, rarely, if it came while its first collective began: a hang."""
    matcher = Matcher()

    class Contexts(dict[int, Context]):
        other: Context | None = None

        def get(self, number: int, default: object = None) -> Context | None:  # type: ignore[override]
            found = super().get(number)
            if self.other is None:  # the other thread comes in between
                self.other = Context(number)
                self.setdefault(number, self.other)
            return found

    matcher.contexts = Contexts()
    assert matcher.context(7) is matcher.contexts.other is matcher.contexts[7]
