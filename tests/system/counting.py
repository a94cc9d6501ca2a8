"""A job of stubs (`stub_rank`) that count, and stay half-way until `Job.go` or `Job.finish`.

The module of the tests needs the fixture `find_the_stub`.
"""

from __future__ import annotations

ENTRY = "tests.system.stub_rank:run_rank"

COUNT = """
    n = int(stub.argv[1])
    for i in range(stub.state.get("i", 0), n):
        if i == n // 2:
            stub.hold()
        print("rank", stub.rank, "step", i)
        stub.state["i"] = i + 1
        stub.step(0.02)
    print("rank", stub.rank, "done")
"""
"""The argument: how many steps, of 20 ms each."""
