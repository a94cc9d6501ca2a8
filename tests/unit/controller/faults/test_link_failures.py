"""When a job's losses are diagnosed, what is asked then, and which host gets no ranks any more."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

from ckpt.controller.faults.link_failures import (
    COLLECT_NS,
    SURVEY_NS,
    UNREACHED_NS,
    Ask,
    Drop,
    LeaveOut,
    LinkFailures,
    Survey,
    which_goes,
)

S = 1_000_000_000
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
EVERYBODY = {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}


def running(hosts: dict[int, str] = HOSTS, incarnation: int = 0) -> LinkFailures:
    losses = LinkFailures()
    for rank, host in hosts.items():
        losses.started(rank, incarnation, host)
    return losses


def test_many_errors_are_one_diagnosis_and_the_witnesses_are_asked_once() -> None:
    losses = running()
    assert losses.down(0, 0, 2, "silent", 2 * S, 0) == [Survey(1, ())]
    losses.surveying(EVERYBODY)
    assert losses.down(1, 0, 3, "silent", 2 * S, 1) == []
    assert losses.down(4, 0, 2, "unreachable", 2 * S, 2) == []
    assert losses.surveyed("a", 1, {"b": None}, COLLECT_NS) == [], "c will answer"
    assert losses.deadline_ns() == SURVEY_NS
    (ask,) = losses.surveyed("c", 1, {"b": errno.EHOSTUNREACH}, SURVEY_NS - 1)  # b will not
    assert isinstance(ask, Ask)
    assert ask.facts["said"] == [["a", "b", False], ["a", "c", True], ["c", "a", True], ["c", "b", False]]
    pairs = [(each["here"], each["there"], each["error"]) for each in ask.facts["lost"]]
    assert pairs == [("a", "b", "silent"), ("c", "b", "unreachable")]
    assert 3.4 < ask.facts["lost"][0]["age_s"] <= 3.5
    assert losses.answered(3 * S) == []
    assert losses.down(0, 0, 3, "silent", 5 * S, 4 * S) == [], "it is known"


def test_all_answers_end_the_collecting_early() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.surveying(EVERYBODY)
    assert losses.deadline_ns() == SURVEY_NS
    for host in "abc":
        losses.surveyed(host, 1, {}, 1)
    assert losses.deadline_ns() == COLLECT_NS
    assert len(losses.tick(COLLECT_NS)) == 1
    assert losses.deadline_ns() is None


def test_who_does_not_answer_is_waited_for_no_longer_than_so() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.surveying(EVERYBODY)
    losses.surveyed("a", 1, {"b": None}, 0)
    assert losses.tick(SURVEY_NS - 1) == []
    (ask,) = losses.tick(SURVEY_NS)
    assert isinstance(ask, Ask)
    assert ask.facts["said"] == [["a", "b", False], ["a", "c", True]]


def test_hosts_that_the_controllers_does_not_reach_are_not_waited_for_as_long_as_others() -> None:
    """One half of the hosts cannot tell the controller anything: the trunk between the halves is cut."""
    losses = running({0: "a", 1: "b", 2: "c", 3: "d"})
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.surveying({host: [each for each in "abcd" if each != host] for host in "abcd"}, "a")
    losses.surveyed("a", 1, {"c": None, "d": None}, 1)
    assert losses.deadline_ns() == SURVEY_NS, "b may come still"
    losses.surveyed("b", 1, {"c": None, "d": None}, 2)
    assert losses.deadline_ns() == UNREACHED_NS
    assert losses.tick(UNREACHED_NS - 1) == []
    assert len(losses.tick(UNREACHED_NS)) == 1


def test_a_link_that_is_down_does_not_wait_for_what_is_asked_of_slow_ones() -> None:
    losses = running()
    (ask,) = losses.slow({"slow": True})
    assert isinstance(ask, Ask)
    assert losses.down(0, 0, 2, "silent", 2 * S, 7 * S) == [Drop(), Survey(1, ())]
    assert losses.began_ns == 7 * S
    assert losses.down(4, 0, 2, "silent", 2 * S, 8 * S) == [], "it is under way"


def test_one_that_reaches_nobody_does_not_end_the_waiting_for_all_others() -> None:
    losses = running()
    losses.down(2, 0, 0, "silent", 2 * S, 0)
    losses.surveying(EVERYBODY)
    losses.surveyed("b", 1, {"a": None, "c": None}, 0)
    assert losses.tick(SURVEY_NS - 1) == []
    losses.surveyed("a", 1, {"b": None}, SURVEY_NS - 1)
    (ask,) = losses.surveyed("c", 1, {"b": None}, SURVEY_NS - 1)
    assert isinstance(ask, Ask)
    assert len(ask.facts["said"]) == 6


def test_who_refuses_a_connection_has_a_network_that_works() -> None:
    losses = running()
    losses.host_lost("b", 0)
    losses.surveying({"a": ["b", "c"]})
    losses.surveyed("a", 1, {"b": errno.ECONNREFUSED}, 0)
    (ask,) = losses.tick(COLLECT_NS)
    assert isinstance(ask, Ask)
    assert ask.facts["said"] == [["a", "b", True], ["a", "c", True]]
    assert ask.facts["missing"] == ["b"]


def test_a_host_whose_loss_is_told_behind_the_survey_that_left_it_out_is_tried_after_all() -> None:
    """A link was down at the very moment at which the host was given up: nobody was asked about it, "its network answers"
    was said of a cable that was pulled, and the host was not drained."""
    losses = running()
    assert losses.down(0, 0, 2, "silent", 2 * S, 0) == [Survey(1, ())]
    losses.surveying({"a": ["c"], "c": ["a"]})
    losses.surveyed("a", 1, {}, 1)
    assert losses.host_lost("b", 2) == [Survey(2, ("b",))]
    losses.surveying({"a": ["b", "c"], "c": ["a", "b"]})
    assert losses.surveyed("c", 1, {}, 3) == [], "an answer to what was asked before"
    losses.surveyed("a", 2, {"b": None}, 4)
    losses.surveyed("c", 2, {"b": None}, 5)
    (ask,) = losses.tick(2 + COLLECT_NS)
    assert isinstance(ask, Ask)
    assert ask.facts["missing"] == ["b"]
    assert [each for each in ask.facts["said"] if not each[2]] == [["a", "b", False], ["c", "b", False]]
    assert losses.answered(S) == []


def test_a_host_that_was_to_be_tried_and_is_lost_then_is_not_asked_about_again() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.surveying(EVERYBODY)
    assert losses.host_lost("b", 1) == []


def test_a_host_that_is_lost_while_another_one_is_asked_about_is_asked_about_next() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.surveying(EVERYBODY)
    losses.surveyed("a", 1, {"b": None}, 1)
    losses.surveyed("c", 1, {"b": None}, 2)
    losses.tick(COLLECT_NS)
    assert losses.state == "asking"
    assert losses.host_lost("b", S) == [], "that is being asked"
    assert losses.host_lost("c", S) == []
    assert losses.answered(2 * S) == [Survey(2, ("c",))]


def test_reports_of_an_incarnation_that_has_ended_say_nothing() -> None:
    losses = running(incarnation=1)
    assert losses.down(0, 0, 2, "refused", S, 0) == []
    assert losses.state == "quiet"


def test_a_restart_under_way_ends_what_was_begun() -> None:
    losses = running()
    losses.down(0, 0, 2, "refused", S, 0)
    assert losses.started(0, 1, "a") == [Drop()]
    assert losses.tick(SURVEY_NS) == []


def test_a_process_that_has_ended_is_no_loss_of_the_network() -> None:
    losses = running()
    losses.down(0, 0, 2, "refused", S, 0)
    assert losses.died(2, 0) == [Drop()]
    assert losses.tick(SURVEY_NS) == []


def test_a_link_that_is_up_again_and_down_once_more_is_diagnosed_once_more() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", S, 0)
    assert len(losses.tick(SURVEY_NS)) == 1
    losses.answered(2 * S)
    losses.up(0, 0, 2)
    assert not losses.is_down("b")
    assert losses.down(0, 0, 2, "silent", S, 9 * S) == [Survey(2, ())]


def test_what_was_lost_while_a_diagnosis_ran_gets_the_next_one() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", S, 0)
    losses.tick(SURVEY_NS)
    assert losses.down(0, 0, 4, "silent", S, SURVEY_NS) == []
    assert losses.answered(2 * S) == [Survey(2, ())]


def record(hosts: list[str], between: list[str] | None = None) -> dict[str, Any]:
    return {"text": "t", "hosts": hosts, "between": between or []}


def located(losses: LinkFailures, found: dict[str, Any]) -> None:
    """b is lost at once, and that is diagnosed."""
    losses.down(0, 0, 2, "silent", 0, 0)
    losses.tick(SURVEY_NS)
    losses.located(found)
    losses.answered(SURVEY_NS)


def test_a_host_at_fault_goes_when_its_link_has_been_down_for_the_time_of_a_lease() -> None:
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record(["b"]))
    assert losses.deadline_ns() == 15 * S
    assert losses.tick(14 * S) == []
    assert losses.tick(15 * S) == [LeaveOut(("b",), "t")]
    losses.gone.add("b")
    assert losses.host_lost("b", 15 * S) == [], "for that"


def test_a_network_that_is_back_before_costs_nothing() -> None:
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record(["b"]))
    losses.up(0, 0, 2)
    assert losses.tick(99 * S) == []
    assert losses.deadline_ns() is None
    assert losses.down(0, 0, 2, "silent", 0, 100 * S) == [Survey(2, ())], "the next time is another one"


def test_a_host_that_is_given_up_before_was_left_out_for_what_was_found() -> None:
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record(["b"]))
    assert losses.host_lost("b", 9 * S) == [LeaveOut(("b",), "t", is_lost=True)]
    assert losses.tick(99 * S) == []


def test_a_host_that_stays_is_diagnosed_again_after_a_restart() -> None:
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record(["b"]))
    for rank, host in HOSTS.items():
        losses.started(rank, 1, host)
    assert losses.tick(99 * S) == []
    assert losses.down(0, 1, 2, "silent", 0, 100 * S) == [Survey(2, ())]


def test_which_host_goes() -> None:
    losses = running()
    assert which_goes(["b"], losses, lambda host: 4) == "b"
    assert which_goes(["b"], losses, lambda host: 0) is None
    assert which_goes(["a", "b"], losses, lambda host: 6) == "a"
    assert which_goes(["a", "b"], losses, lambda host: 4) is None, "the others have no room"


def test_of_two_that_only_do_not_reach_each_other_one_goes() -> None:
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record([], ["a", "b"]))
    assert losses.tick(15 * S) == [LeaveOut(("a", "b"), "t")]


def test_of_two_hosts_one_goes_later_though_nobody_can_say_whose_side_it_is() -> None:
    """Both have kept their leases. Their ranks waited for each other for ever."""
    losses = running()
    losses.patience_ns = 15 * S
    located(losses, record([]))
    assert losses.tick(30 * S) == []
    assert losses.tick(32 * S) == [LeaveOut(("a", "b"), "t")]
    losses = running()
    losses.patience_ns = 15 * S
    losses.down(0, 0, 4, "silent", 0, 0)
    located(losses, record([]))
    assert losses.tick(99 * S) == [], "three are concerned"


def test_a_link_that_is_up_before_all_have_answered_is_not_diagnosed() -> None:
    losses = running()
    losses.down(0, 0, 2, "silent", 0, 0)
    assert losses.up(0, 0, 2) == [Drop()]
    assert losses.tick(SURVEY_NS) == []


def test_any_order_of_events_leads_to_one_diagnosis_at_a_time_and_to_an_end() -> None:
    """Random histories: never two at once, never one for what is known, and none is begun that does not end."""
    for seed in range(300):
        random = Random(seed)
        losses, now_ns, asked, incarnation = running(), 0, 0, 0
        open_survey = open_ask = False
        for _ in range(60):
            now_ns += random.randrange(S)
            rank, peer = random.sample(range(6), 2)
            match random.randrange(7):
                case 0 | 1:
                    actions = losses.down(rank, incarnation, peer, "silent", S, now_ns)
                case 2:
                    actions = losses.up(rank, incarnation, peer)
                case 3:
                    actions = losses.host_lost(random.choice("abc"), now_ns)
                case 4:
                    actions = losses.surveyed(random.choice("abc"), losses.number, {}, now_ns)
                case 5:
                    incarnation += random.random() < 0.2
                    actions = losses.started(rank, incarnation, HOSTS[rank])
                case _:
                    actions = losses.answered(now_ns) if open_ask else losses.tick(now_ns)
                    open_ask = False
            for action in actions:
                match action:
                    case Survey():
                        assert not open_survey and not open_ask
                        open_survey = True
                        losses.surveying(EVERYBODY)
                    case Ask(facts=facts):
                        assert open_survey and not open_ask
                        assert facts["lost"] or facts["missing"]
                        open_survey, open_ask, asked = False, True, asked + 1
                    case Drop():
                        assert open_survey
                        open_survey = False
                    case LeaveOut():
                        raise AssertionError("nothing was found")
            assert (losses.deadline_ns() is not None) == open_survey


def test_a_rank_that_is_not_started_again_costs_no_other_host_anything() -> None:
    """Its host is left out; what it has said of others is no reason to leave those out, too."""
    losses = running()
    losses.down(2, 0, 0, "silent", 2 * S, 0)
    losses.down(0, 0, 2, "silent", 2 * S, 0)
    losses.died(2, 0, with_host=True)
    assert not losses.losses and not losses.is_down("a")
