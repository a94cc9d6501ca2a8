"""Slow is told beside peers, of what lasts, and once; never of what is ordinary."""

from __future__ import annotations

from itertools import combinations
from random import Random

from ckpt.controller.faults.slowness import IN_A_ROW, Counts, Slowness, SlowPair

MS = 1_000_000
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c", 6: "d"}


class Job:
    """All connections send 10 000 segments a checkpoint. `lossy`, `late`: hosts all of whose connections are, or pairs."""

    def __init__(self, hosts: dict[int, str] = HOSTS) -> None:
        self.hosts = hosts
        self.slowness = Slowness()
        self.counts: dict[tuple[int, int], Counts] = {}
        self.epoch = 0

    def checkpoint(
        self, lossy: str = "", late: str = "", pair: str = "", noise: Random | None = None
    ) -> list[SlowPair]:
        self.epoch += 1
        told = []
        for rank, host in self.hosts.items():
            peers = {}
            for peer, there in self.hosts.items():
                if there == host:
                    continue
                before = self.counts.get((rank, peer), Counts(MS, 0, 0))
                is_lossy = host in lossy or there in lossy or {host, there} == {*pair}
                again = 300 if is_lossy else noise.randrange(4) if noise else 0
                rtt_ns = (
                    400 * MS
                    if host in late or there in late
                    else MS * (noise.randrange(1, 40) if noise else 1)
                )
                peers[peer] = Counts(rtt_ns, before.again + again, before.sent + 10_000)
                self.counts[rank, peer] = peers[peer]
            told += self.slowness.counted(rank, self.epoch, peers, self.hosts)
        return told


def test_a_host_whose_connections_lose_much_is_told_once_when_it_lasts() -> None:
    job = Job()
    job.checkpoint()
    for _ in range(IN_A_ROW - 1):
        assert job.checkpoint(lossy="b") == []
    told = job.checkpoint(lossy="b")
    assert [each.hosts for each in told] == [("a", "b"), ("b", "c"), ("b", "d")]
    assert told[0].loss == 0.03 and told[0].others_loss == 0
    facts = job.slowness.facts()
    assert ["a", "b", False] in facts["said"] and ["c", "a", True] in facts["said"]
    assert job.checkpoint(lossy="b") == []
    job.checkpoint()
    for _ in range(IN_A_ROW - 1):
        job.checkpoint(late="b")
    assert len(job.checkpoint(late="b")) == 3, "it was well in between"


def test_what_does_not_last_is_not_told() -> None:
    job = Job()
    for number in range(30):
        assert job.checkpoint(lossy="b" if number % 3 else "") == []


def test_all_alike_are_not_slow() -> None:
    job = Job()
    for _ in range(10):
        assert job.checkpoint(late="abcd") == job.checkpoint(lossy="abcd") == []


def test_two_hosts_have_no_peers() -> None:
    job = Job({0: "a", 1: "b"})
    for _ in range(10):
        assert job.checkpoint(lossy="b") == []


def test_new_connections_and_new_ranks_begin_to_count_anew() -> None:
    job = Job()
    for _ in range(2):
        job.checkpoint(lossy="b")
    job.slowness.begin_again()
    job.counts.clear()
    job.epoch = 0
    for _ in range(IN_A_ROW):
        assert job.checkpoint(lossy="b") == [], "the first has nothing before it"
    assert job.checkpoint(lossy="b")


def test_no_pair_that_is_ordinary_is_ever_told() -> None:
    for seed in range(60):
        random = Random(seed)
        job = Job()
        pair = "".join(random.choice(list(combinations("abcd", 2)))) if seed % 2 else ""
        told = [each.hosts for _ in range(12) for each in job.checkpoint(pair=pair, noise=random)]
        assert told == ([tuple(pair)] if pair else [])
