"""What Slurm says of an allocation, as this package understands it."""

from __future__ import annotations

import pytest

from ckpt.controller.errors import UsageError
from ckpt.controller.hosts import slurm
from ckpt.controller.hosts.orphan import has_lost_its_script
from ckpt.controller.supervision.plan import Node


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3],x", ["n1", "n2", "n3", "x"]),
        ("n[1,08-10]", ["n1", "n08", "n09", "n10"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("gpu-a[01-02].example,login", ["gpu-a01.example", "gpu-a02.example", "login"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert slurm.hosts_of(text) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n[a-b]", "n 1", "(null)", "n[]"])
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(UsageError, match="is no list of nodes"):
        slurm.hosts_of(text)


def environment(**more: str) -> dict[str, str]:
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", **more}


def test_tasks_are_slots_and_else_processors() -> None:
    found = slurm.allocation_of(environment(SLURM_TASKS_PER_NODE="4(x2),1", SLURM_JOB_CPUS_PER_NODE="8(x3)"))
    assert found == slurm.Allocation("7", [Node("n1", 4), Node("n2", 4), Node("n3", 1)])
    found = slurm.allocation_of(environment(SLURM_JOB_CPUS_PER_NODE="8,2(x2)"))
    assert [node.slots for node in found.nodes] == [8, 2, 2]
    assert slurm.node_count(environment()) == 3 and slurm.node_count({}) == 0


def test_nodes_that_the_allocation_has_lost_are_left_out() -> None:
    found = slurm.allocation_of(environment(SLURM_TASKS_PER_NODE="1,2,3"), ["n1", "n3"])
    assert found.nodes == [Node("n1", 1), Node("n3", 3)]
    words = slurm.step_words(found, "{agent}")
    assert {"--nodelist=n1,n3", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(words)
    assert words[-1] == "{agent}"


def test_outside_of_an_allocation() -> None:
    with pytest.raises(UsageError, match=r"not in an allocation .*`ckpt submit`.*--hosts"):
        slurm.allocation_of({})
    with pytest.raises(UsageError, match="do not fit the nodes"):
        slurm.allocation_of(environment(SLURM_TASKS_PER_NODE="4"))


def test_a_job_that_has_lost_the_node_of_its_script() -> None:
    shown = "JobId=1 JobName=x\n   JobState={} Reason=None\n   NodeList={}\n   BatchHost={}\n   NumNodes=2"
    assert has_lost_its_script(shown.format("RUNNING", "n[2-3]", "n1"))
    assert not has_lost_its_script(shown.format("RUNNING", "n[1-3]", "n1"))
    assert not has_lost_its_script(shown.format("PENDING", "n[2-3]", "n1"))
    assert not has_lost_its_script("JobId=1 JobState=RUNNING NodeList=n2")
    assert not has_lost_its_script("slurm_load_jobs error: Invalid job id specified")


def test_whether_a_job_lives_on_without_a_node() -> None:
    """`--no-kill` in its script, or in what the user has set for sbatch and salloc."""
    script = "#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --open-mode=append --no-kill\nsrun x  # --no-kill\n"
    assert slurm.survives_a_node(script, {})
    assert slurm.survives_a_node("#!/bin/bash\n#SBATCH -k\n", {})
    assert slurm.survives_a_node("", {"SALLOC_NO_KILL": "1"})
    assert not slurm.survives_a_node("#!/bin/bash\n#SBATCH --nodes=3\nsrun --no-kill x\n", {})
    assert not slurm.survives_a_node("", {})
