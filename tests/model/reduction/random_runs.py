"""Random schedules of random reductions: by a number, from which everything follows."""

from __future__ import annotations

from collections import Counter
from random import Random

from ckpt.reduction.messages import Contract
from tests.model.reduction.world import RuleBroken, World

MOST_EVENTS = 1000  # of a run, for each pair of ranks


def contract_of(random: Random, size: int) -> Contract:
    commutative = random.random() < 0.7
    return Contract(
        root=random.choice([-1, random.randrange(size)]),
        order=random.choice(["tree", "ready"]),
        commutative=commutative,
        copies=random.choice([0, 1, 1, 2]),
        on_loss=random.choice(["raise", "partial"]),
        on_root_loss=random.choice(["raise", "next"]),
        quorum=random.choice([0, 0, 0, random.randint(1, size)]),
        deadline_ns=random.choice([0, 0, 1]),
    )


def run(number: int, largest: int = 9, contract: Contract | None = None, deaths: int | None = None) -> str:
    """One run to its end; how it ended. Raises RuleBroken, with what was to be run."""
    random = Random(number)
    size = random.randint(1, largest)
    contract = contract_of(random, size) if contract is None else contract
    kills = random.choice([0, 1, 1, 2, 3, size - 1]) if deaths is None else deaths
    vanishes = number % 5 == 4
    kill_chance = random.choice([0.3, 0.05, 0.01])
    direct = number % 3 > 0
    world = World(size, contract, min(kills, size - 1), expires=contract.deadline_ns > 0, direct=direct)
    for process in world.processes:
        process.elapsed_ns = random.randrange(10)
    lazy = {rank for rank in range(size) if random.random() < 0.2}  # who calls late, if ever it can be
    try:
        for _ in range(MOST_EVENTS * size * size):
            events = world.events()
            killable = world.kills()
            if killable and random.random() < kill_chance:
                world.step(random.choice(killable))
                continue
            ready = [each for each in events if each[0] != "call" or each[1] not in lazy] or events
            if not ready:
                break
            event = random.choice(ready)
            if event[0] == "compute" and vanishes and random.random() < 0.3:
                copies = world.processes[event[1]].copies(event[2])
                if copies:
                    event = ("vanish", event[1], event[2], copies[0])
            if event[0] == "read" and vanishes and random.random() < 0.3:
                event = ("unread", event[1])
            world.step(event)
        else:
            raise RuleBroken("no end")
        world.check_end()
    except Exception as error:
        raise RuleBroken(f"run {number}, {size} ranks, {contract}: {error!r}") from error
    outcome = world.living()[0].outcome
    assert outcome is not None
    return outcome.error or ("partial" if outcome.missing else "whole")


def runs(numbers: range, largest: int = 9) -> Counter[str]:
    return Counter(run(number, largest) for number in numbers)


if __name__ == "__main__":
    import sys

    print(runs(range(int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3])))
