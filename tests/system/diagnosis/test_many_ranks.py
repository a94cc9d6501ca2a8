"""Sixty-four ranks lose each other since a switch is dead: one diagnosis, in which no component is asked about twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.faults.link_failures import Ask, LinkFailures, Survey
from ckpt.diagnosis import jobs, manager
from ckpt.diagnosis.asking import Question, Reply, ask
from tests.system.diagnosis import devices

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]
HOSTS, RANKS = 8, 64
SECOND_NS = 1_000_000_000


def facts() -> dict[str, Any]:
    """Hosts n5 to n8 hang on sw2, which is dead: all ranks say so of each other, and the hosts that are reached, too."""
    losses = LinkFailures()
    on = {rank: f"n{rank * HOSTS // RANKS + 1}" for rank in range(RANKS)}
    for rank, host in on.items():
        losses.started(rank, 0, host)
    dead = {f"n{number}" for number in range(5, 9)}
    actions = []
    for rank, host in on.items():
        for peer, there in on.items():
            if host != there and {host, there} & dead:
                actions += losses.down(rank, 0, peer, "silent", 2 * SECOND_NS, SECOND_NS)
    [survey] = actions
    assert isinstance(survey, Survey)
    names = sorted({*on.values()})
    losses.surveying({host: [each for each in names if each != host] for host in names})
    asked = []
    for host in names:
        if host not in dead:
            asked += losses.surveyed(host, survey.number, dict.fromkeys(sorted(dead)), 2 * SECOND_NS)
    asked += losses.tick(4 * SECOND_NS)
    [one] = asked
    assert isinstance(one, Ask)
    return one.facts


def test_the_switch_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Callable[[str, int], None]
) -> None:
    silent = devices.Broken(garbage=False)
    lines = []
    for number in range(1, HOSTS + 1):
        well = number < 5
        lines += [
            f"[host.n{number}]",
            f'address = "127.0.0.{number}"',
            'interface = "lo"',
            f'port = "p{number}"',
        ]
        lines += [f'switch = "sw{1 if well else 2}"', f'bmc = "{silent.address}"']
        # Behind it nothing answers
        lines.append('shell = ["env"]' if well else 'shell = ["sh", "-c", "exec sleep 1000"]')
    lines += ["[switch.sw1]", 'shell = ["env"]', "[switch.sw2]", f'snmp = ["{silent.address}"]']
    lines += ["[[trunk]]", 'ends = [["sw1", "up"], ["sw2", "down"]]']
    path = tmp_path / "topology.toml"
    path.write_text("\n".join(lines) + "\n")
    rounds: list[list[Question]] = []
    requests: list[manager.Request] = []

    def counted(questions: Iterable[Question], *more: Any) -> dict[Question, Reply]:
        rounds.append(list(dict.fromkeys(questions)))
        return ask(rounds[-1], *more)

    def seen(found: Sequence[manager.Request], *more: Any) -> None:
        requests.extend(found)
        manager.query_all(found, *more)

    monkeypatch.setattr(manager, "ask", counted)
    monkeypatch.setattr(jobs, "query_all", seen)
    try:
        record = jobs.locate({**facts(), "topology": str(path), "counters": None, "wanted": True})
    finally:
        silent.end()
    assert record["witnesses"]["possible"] == [["switch sw2"], ["trunk sw1 sw2"]], record["text"]
    about = {each.component for request in requests for each in request.graph.candidates.values()}
    asked = [each for one in rounds for each in one]
    figures("questions of a diagnosis, 64 ranks and a dead switch", len(asked))
    assert 0 < len(asked) == len({*asked}) <= len(about), (len(asked), len(about))
    figures("components that these are about", len(about))
