"""The demo of redundant ranks: a tsunami on four ranks, computed by twelve processes of which one after the other is wrong.

    make demo-redundancy

1. The tsunami of examples/tsunami runs undisturbed on four ranks.
2. It runs again with three replicas of each rank. Every two seconds a bit flips in what a random replica sends; two replicas
   are killed with SIGKILL. Who is wrong or dead is replaced by a copy of a healthy one, while the others go on.
3. What both have printed, with a digest of all results, is compared byte for byte; a picture shows who was replaced when.

All that is said here is read off the job's event log. Exit status: 0 when the results are equal and no error went unseen.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from demo import APPLICATION, Event, Failed, Watch, named

WIDTH = 72
WHOLE_S = 20.0


class Run:
    """One `ckpt run` of the tsunami, which prints its results."""

    def __init__(self, directory: Path, options: argparse.Namespace, *flags: str, flips: str = "") -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.job, self.output = directory / "job", directory / "output"
        application = [
            str(APPLICATION),
            "--out",
            "-",
            "--hours",
            str(options.hours),
            "--refine",
            str(options.refine),
        ]
        command = [
            sys.executable,
            "-m",
            "ckpt",
            "run",
            "-n",
            str(options.ranks),
            "--job",
            str(self.job),
            *flags,
        ]
        command += ["--", *application]
        print("  $", f"CKPT_FLIPS={flips} ckpt" if flips else "ckpt", *command[3:], flush=True)
        self.started = time.monotonic()
        environment = {**os.environ, **({"CKPT_FLIPS": flips} if flips else {})}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, env=environment)
        self.watch = Watch(self.job / "events.jsonl", lambda: self.process.poll() is None)

    def finish(self, timeout_s: float) -> float:
        """Wait for the end; returns how long it took, in s."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"the job did not end within {timeout_s:.0f} s") from None
        self.watch.read()
        if code != 0:
            raise Failed(f"ckpt run ended with exit code {code}")
        return time.monotonic() - self.started

    def stop(self) -> None:
        """For the way out after a failure: no process is left behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()


def kill_some(run: Run, count: int, every_s: float, chance: random.Random) -> None:
    """Kill `count` processes of replicas that compute, as long as the job runs: each after `every_s`, and then as soon as
    all three replicas are there, for which WHOLE_S are waited."""
    run.watch.wait("the start of the ranks", named("running"), timeout_s=120)
    for _ in range(count):
        until = time.monotonic() + every_s
        while run.watch.alive() and time.monotonic() < until + WHOLE_S:
            time.sleep(0.05)
            run.watch.read()
            if time.monotonic() >= until and "." not in "".join(
                line[-1] for line in picture(run.watch.events, 3)
            ):
                break
        living = pids(run.watch.events)
        if not run.watch.alive() or not living:
            return
        process, pid = chance.choice(sorted(living.items()))
        print(f"  !! {time.monotonic() - run.started:5.1f} s: kill -9 {pid} (process {process})", flush=True)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            print("     it was ended just before", flush=True)


def pids(events: list[Event]) -> dict[int, int]:
    """The processes of the job that live, by number."""
    found: dict[int, int] = {}
    for event in events:
        if event["event"] == "rank-started":
            found[event["rank"]] = event["pid"]
        elif event["event"] in ("rank-left", "rank-died", "rank-finished"):
            found.pop(event["rank"], None)
        elif event["event"] == "replica-lost":
            found.pop(event.get("process"), None)
    return found


# ---- who was replaced when -------------------------------------------------------------------------------


def picture(events: list[Event], replicas: int, width: int = WIDTH) -> list[str]:
    """A line for each of the replicas that a rank begins with: who computes in that place, from left to right in time.

    The number of a replica begins its time; x: it was wrong, k: it was killed, .: nobody is there, >: all go back."""
    first = next(event["ns"] for event in events if event["event"] == "running")
    last = max(event["ns"] for event in events)

    def column(event: Event) -> int:
        return min(width - 1, (event["ns"] - first) * width // max(1, last - first + 1))

    lines = [[" "] * width for _ in range(replicas)]
    place = {plane: plane for plane in range(replicas)}
    for row in range(replicas):
        begin(lines[row], 0, str(row))
    for event in events:
        if event["ns"] < first:
            continue
        at = column(event)
        match event["event"]:
            case "replica-differs" | "replica-lost" if place.get(event["replica"]) is not None:
                row = place.pop(event["replica"])
                lines[row][at:] = [
                    "x" if event["event"] == "replica-differs" else "k",
                    *"." * (width - at - 1),
                ]
            case "replica-cloned":
                place[event["replica"]] = event["place"]
                begin(lines[event["place"]], at, str(event["replica"]))
            case "restarted":
                place = {plane: plane for plane in range(replicas)}
                for row in range(replicas):
                    begin(lines[row], at, f">{row}")
            case _:
                pass
    return ["".join(line) for line in lines]


def begin(line: list[str], at: int, name: str) -> None:
    """From column `at` on `name` computes. What happened in the column before stays to be seen."""
    at = at + 1 if at + len(name) < len(line) and line[at] in "xk" else at
    text = (name + "=" * len(line))[: len(line) - at]
    line[at:] = list(text)


def story(events: list[Event]) -> list[str]:
    """What happened to replicas, in words."""
    first = next(event["ns"] for event in events if event["event"] == "running")
    found = []
    for event in events:
        seconds = (event["ns"] - first) / 1e9
        if event["event"] == "replica-differs":
            who = f"replica {event['replica']}" if event["replica"] is not None else "replicas"
            rank = (
                event["rank"]
                if event["rank"] is not None
                else f"{event['seen_in']} (where it began is not known)"
            )
            found.append(f"{seconds:6.1f} s  {who} of rank {rank}: wrong {event['what']}")
        elif event["event"] in ("replica-lost", "replica-cloned"):
            found.append(f"{seconds:6.1f} s  {event['reason']}")
        elif event["event"] == "restarted":
            found.append(f"{seconds:6.1f} s  all replicas were started again")
    return found


# ---- the demo --------------------------------------------------------------------------------------------


def demo(options: argparse.Namespace) -> None:
    """All of it; raises Failed when something is not as it should be."""
    root: Path = options.out
    runs: list[Run] = []
    try:
        print("1. undisturbed", flush=True)
        plain = Run(root / "undisturbed", options)
        runs.append(plain)
        plain_s = plain.finish(options.timeout)
        print("\n2. three replicas, flipped bits, two kills", flush=True)
        flips = f"seed={options.seed},every={options.flip_every:g}"
        flags = ("--redundancy", "3", "--clones", "20")
        redundant = Run(root / "redundant", options, *flags, flips=flips)
        runs.append(redundant)
        kill_some(redundant, 2, plain_s, random.Random(options.seed))
        redundant_s = redundant.finish(options.timeout)
    finally:
        for run in runs:
            run.stop()
    events = redundant.watch.events
    print("\n3. who was replaced when (x: wrong, k: killed, .: nobody is there, >: all go back)", flush=True)
    for row, line in enumerate(picture(events, 3)):
        print(f"  replica {row}  {line}")
    print("\n".join(f"  {line}" for line in story(events)))
    print(f"\n  undisturbed {plain_s:.1f} s, redundant {redundant_s:.1f} s on {os.cpu_count()} cores")
    if plain.output.read_bytes() != redundant.output.read_bytes():
        raise Failed(f"the results differ: {plain.output} and {redundant.output}")
    if not any(event["event"] == "replica-differs" for event in events):
        raise Failed("no replica was wrong: the run was too short for a flip")
    print("\nThe results are equal, byte for byte.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    option = parser.add_argument
    option("--out", type=Path, default=Path("demo-output"), help="directory for results and jobs")
    option("--ranks", "-n", type=int, default=4, help="number of ranks")
    option("--hours", type=float, default=1.0, help="simulated hours")
    option("--refine", type=int, default=3, help="fineness of the grid; the work grows with its cube")
    option("--seed", type=int, default=1, help="of flips and kills")
    option("--flip-every", type=float, default=2.0, metavar="S", help="seconds between flipped bits")
    option("--timeout", type=float, default=600.0, metavar="S", help="give up when one part takes longer")
    options = parser.parse_args()
    options.out = options.out.resolve()
    try:
        demo(options)
    except Failed as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
