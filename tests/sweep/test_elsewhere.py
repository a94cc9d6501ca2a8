"""Resumed where things are different: another patch version, hash seed, directory, path of the virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.store import JobDirectory
from tests.sweep.catalogue import PROGRAMS
from tests.sweep.driver import ROOT, Bench
from tests.sweep.fetch import Place
from tests.system.support import EndedEarly, Job, long_enough

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(5)]

Start = Callable[..., Job]


def other_patch_versions() -> Iterator[str]:
    """Interpreters of this minor version, but not of this patch version, that are found on this machine."""
    minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    roots = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep)]
    roots += [Path("/usr/bin"), Path("/usr/local/bin")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    roots += sorted(pyenv.glob("versions/*/bin"))
    seen = {sys.version.split()[0]}
    for root in roots:
        python = root / minor
        if not python.exists():
            continue
        asked = subprocess.run(
            [python, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, text=True
        )
        version = asked.stdout.strip()
        if asked.returncode == 0 and version not in seen:
            seen.add(version)
            yield str(python)


@pytest.mark.parametrize("name", ["hexiom", "sorted_toolz", "stdlib_text"])
def test_another_patch_version(
    name: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = list(other_patch_versions())
    if not others:
        pytest.skip(
            f"no other patch version of Python {sys.version_info[0]}.{sys.version_info[1]} on this machine"
        )
    with Bench(PROGRAMS[name], place, tmp_path / "bench") as bench:
        expected = bench.undisturbed()
        checks = bench.images(places=[1 << 62])["checks"]
        taken = bench.images(places=[checks // 3, checks // 2, checks * 9 // 10])
        assert len(taken["images"]) == 3
        # Of what ckpt itself needs
        libraries = [entry for entry in sys.path if entry.endswith("site-packages")]
        found = os.pathsep.join([str(ROOT), *place.path, *libraries])
        monkeypatch.setattr(bench, "environment", lambda: {**Bench.environment(bench), "PYTHONPATH": found})
        for python in others:
            bench.close()
            bench.python = python
            for image in taken["images"]:
                differs = bench.difference(bench.resume(image["epoch"]), expected)
                assert not differs, f"{python}: {differs}"


def _job_environment(place: Place, **changed: str) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *place.path]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **changed,
    }


def _plain(job: Path, command: list[str], environment: dict[str, str]) -> str:
    """What plain Python prints with the hash seed of the job."""
    seed = str(JobDirectory.open(job).hash_seed)
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_another_hash_seed_in_the_launcher_and_another_directory(
    start: Start, place: Place, tmp_path: Path
) -> None:
    script = str(place.suite / "bm_hexiom" / "run_benchmark.py")
    environment = _job_environment(place)

    def killed(loops: int) -> tuple[Job, int]:
        job = start(
            script,
            *("--loops", loops),
            name=f"job-{loops}",
            ranks=1,
            every=0.1,
            env={**environment, "PYTHONHASHSEED": "1"},
        )
        job.wait_event("committed")
        job.process.kill()
        if job.process.wait() == 0:
            raise EndedEarly
        job.kill_rank(0)
        return job, loops

    job, loops = long_enough(40, killed)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "ckpt", "restart", str(job.directory)],
        env={**os.environ, **environment, "PYTHONHASHSEED": "77"},
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert job.output(0) == _plain(job.directory, [script, "--loops", str(loops)], environment)


def test_a_virtual_environment_that_has_moved(place: Place, tmp_path: Path) -> None:
    """The packages an image refers to are found in the environment of the interpreter that resumes it."""
    old, new = tmp_path / "old" / "env", tmp_path / "new" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(old)], check=True)
    libraries = next(old.glob("lib/python3.*/site-packages"))
    for name in ("sortedcontainers", "toolz", "more_itertools"):
        shutil.copytree(place.root / "site-packages" / name, libraries / name)
    outside = [entry for entry in sys.path if entry.endswith("site-packages")]
    (libraries / "outside.pth").write_text("\n".join([str(ROOT), *outside]) + "\n")
    script, program = str(Path(__file__).parent / "scenarios" / "sorted_toolz.py"), tmp_path / "program.py"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def command(env: Path, *arguments: object) -> list[str]:
        return [str(env / "bin" / "python"), "-m", "ckpt", *map(str, arguments)]

    def stopped(loops: int) -> Path:
        program.write_text(f"for turn in range({loops}):\n    exec(open({script!r}).read(), {{}})\n")
        job = tmp_path / f"job-{loops}"
        running = subprocess.Popen(
            command(old, "run", "-n", 1, "--every", "0.2", "--job", job, program),
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        told = ""
        while running.poll() is None:  # too early, or a round that was burnt: asked again
            asked = subprocess.run(
                command(old, "checkpoint", "--stop", job),
                env=environment,
                capture_output=True,
                text=True,
                cwd=tmp_path,
            )
            told = asked.stderr
            if asked.returncode == 0:
                running.communicate(timeout=60)
                return job
        if running.returncode == 0:
            raise EndedEarly(told)
        raise AssertionError(running.communicate()[1])

    job = long_enough(40, stopped)
    expected = subprocess.run(
        [str(old / "bin" / "python"), str(program)],
        env={**environment, "PYTHONHASHSEED": str(JobDirectory.open(job).hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    new.parent.mkdir()
    old.rename(new)
    done = subprocess.run(
        command(new, "restart", job), env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (job / "output" / "rank-0.out").read_text() == expected
