"""The process that asks: `python -m ckpt.diagnosis.handlers`.

It reads one line of JSON from standard input, asks everything at once, each query in a thread of its own, and
writes a line of JSON for each answer as it comes:

    in     {"within_s": 3.0, "queries": [{"id": 0, "handler": "snmp", "arguments": {…}, "secret": {…} or null}, …]}
    out    {"id": 0, "values": {"admin": "up", …}}   or   {"id": 0, "reason": "sw1 does not answer", "silent": true}

A line {"prepare": ["snmp", …]} may come before: it only imports these handlers, and asks nothing.

A library that hangs, in C too, hurts nobody: the kernel ends this process at the deadline, whoever started it and
wherever it runs. Secrets come by standard input only, so they are on no command line and in no environment.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from typing import Any

from ckpt.diagnosis.errors import NoAnswer
from ckpt.diagnosis.handlers.face import HANDLERS

_GRACE_S = 0.5  # what is written at the deadline should still arrive


def main() -> int:
    # It leads its group already, unless it was started by a remote shell
    with contextlib.suppress(PermissionError):
        os.setsid()
    request: dict[str, Any] = json.loads(sys.stdin.readline() or "{}")
    if "prepare" in request:
        for name in request["prepare"]:
            with contextlib.suppress(Exception):  # the query will say so
                _module(name)
                if library := HANDLERS[name].library:
                    importlib.import_module(library)
        request = json.loads(sys.stdin.readline() or "{}")
    if not request:
        return 0  # nothing is asked any more
    within_s = float(request["within_s"])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel's own action: no Python code has to run for it
    signal.setitimer(signal.ITIMER_REAL, within_s + _GRACE_S)
    writing = threading.Lock()

    def ask(query: dict[str, Any]) -> None:
        line: dict[str, Any] = {"id": query["id"]}
        try:
            line["values"] = _module(query["handler"]).ask(query["arguments"], query["secret"], within_s)
        except NoAnswer as error:
            line |= {"reason": str(error), "silent": error.silent}
        except (
            Exception
        ) as error:  # a query ends nothing but itself; the text has no arguments, so no secrets
            line["reason"] = f"the handler failed: {type(error).__name__}"
        with writing:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    queries = request["queries"]
    threads = [threading.Thread(target=ask, args=(query,), daemon=True) for query in queries]
    for thread, query in zip(threads, queries, strict=True):
        thread.start()
        if HANDLERS[query["handler"]].alone:
            thread.join()
    for thread in threads:
        thread.join()
    os.killpg(0, signal.SIGKILL)  # threads of libraries are not waited for, and commands leave nothing behind
    return 0


def _module(name: str) -> Any:
    return importlib.import_module(f"ckpt.diagnosis.handlers.{HANDLERS[name].module}")


if __name__ == "__main__":
    sys.exit(main())
