"""The batch script of `ckpt submit`: which option is whose, how many nodes, how early the signal, and the text."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ckpt.controller.cli.main import main
from ckpt.controller.cli.submit import divided
from ckpt.controller.errors import UsageError
from ckpt.controller.hosts import batch


def test_each_option_goes_where_it_is_known() -> None:
    words = [
        "-n",
        "16",
        "--time=4:00:00",
        "--spares",
        "1",
        "--every",
        "10m",
        "--partition",
        "long",
        "-Aproject",
    ]
    words += ["--exclusive", "--mem=4G", "--prefix", "--json"]
    own, run, sbatch = divided(words)
    assert own == ["-n", "16", "--time=4:00:00", "--spares", "1", "--json"]
    assert run == ["--every", "10m", "--prefix"]
    assert sbatch == {"--partition": "long", "-A": "project", "--exclusive": None, "--mem": "4G"}


@pytest.mark.parametrize(
    "word", ["--signal=B:USR1@5", "--wrap=x", "--array=1-3", "--hosts=a,b", "--resume=never"]
)
def test_options_that_the_script_itself_gives_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is in the script that `ckpt submit` writes"):
        divided([word])


@pytest.mark.parametrize("flag", ["--nice", "--propagate", "--ignore-pbs"])
def test_an_option_whose_value_may_be_left_out_takes_no_other_word(flag: str) -> None:
    assert divided([flag, "-np", "4", f"{flag}=1"]) == (["-np", "4"], [], {flag: "1"})
    assert divided([flag, "-np4"]) == (["-np4"], [], {flag: None})


@pytest.mark.parametrize("word", ["-W", "--test-only"])
def test_options_with_which_sbatch_does_not_only_submit_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"`ckpt submit` returns|use --dry-run"):
        divided([word])


@pytest.mark.parametrize(
    ("ranks", "spares", "sbatch", "words", "nodes"),
    [
        (16, 0, {}, ["--ntasks=16"], None),
        (16, 1, {"--ntasks-per-node": "4"}, ["--nodes=5", "--ntasks-per-node=4"], 5),
        (16, 1, {"-N": "5"}, ["--nodes=5", "--ntasks-per-node=4"], 5),
        (5, 0, {"--nodes": "2"}, ["--nodes=2", "--ntasks-per-node=3"], 2),
        (3, 0, {"--nodes": "1"}, ["--nodes=1", "--ntasks-per-node=3"], 1),
        (4, 0, {"--nodes": "4", "--ntasks-per-node": "2"}, ["--nodes=4", "--ntasks-per-node=2"], 4),
    ],
)
def test_nodes_for_ranks_and_spares(
    ranks: int, spares: int, sbatch: dict[str, str | None], words: list[str], nodes: int | None
) -> None:
    assert batch.layout(ranks, spares, sbatch) == (words, nodes)


@pytest.mark.parametrize(
    ("ranks", "spares", "sbatch", "says"),
    [
        (16, 1, {}, "--spares: how many ranks are to be on a node"),
        (16, 2, {"--nodes": "2"}, "there is none for the ranks"),
        (16, 1, {"--nodes": "4", "--ntasks-per-node": "4"}, "16 ranks and 1 spares need 5 nodes"),
        (16, 0, {"--nodes": "2-4"}, "a number is needed here"),
    ],
)
def test_nodes_that_do_not_fit(ranks: int, spares: int, sbatch: dict[str, str | None], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        batch.layout(ranks, spares, sbatch)


def test_the_signal_comes_in_time_for_a_checkpoint() -> None:
    assert [batch.seconds_of(t) for t in ("30", "30:10", "4:00:00", "1-2", "1-2:3:4")] == [
        1800,
        1810,
        14400,
        93600,
        93784,
    ]
    assert [batch.lead_s(t, None) for t in (None, "4:00:00", "30", "10", "1")] == [300, 300, 180, 60, 30]
    assert batch.lead_s("10", 40) == 40
    with pytest.raises(UsageError, match="is to come within --time 1"):
        batch.lead_s("1", 60)
    with pytest.raises(UsageError, match="as sbatch takes it"):
        batch.lead_s("4h", None)


def test_the_script_is_for_people_and_for_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "it's an app.py"
    app.write_text("print(1)")
    job = tmp_path / "a job"
    options = ["-n", "4", "--ntasks-per-node", "2", "--spares", "1", "--time", "20", "--every", "60"]
    assert main(["submit", "--dry-run", *options, "--account", "me", "--job", str(job), str(app)]) == 0
    path = tmp_path / "a job.sh"
    assert "is written, and not submitted" in capsys.readouterr().out
    text = path.read_text()
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        '#SBATCH --job-name="a job"',
        "#SBATCH --nodes=3 --ntasks-per-node=2",
        "#SBATCH --account=me",
        "#SBATCH --time=20",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append --no-kill",
        f'#SBATCH --output="{job}.log"',
    ]
    assert "--engine slurm --checkpoint-on-signal --max-starts 3" in text and "--every 60" in text
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_what_sbatch_would_cut_is_quoted(tmp_path: Path) -> None:
    """It cuts at spaces and #, and refuses the whole script for a word that is no option."""
    app = tmp_path / "app.py"
    app.write_text("print(1)")
    words = [
        "--comment",
        'two # words, "one" \\',
        "-J",
        "a b",
        "--gres=gpu:a100:2",
        "--job",
        str(tmp_path / "job"),
    ]
    assert main(["submit", "--dry-run", *words, str(app)]) == 0
    lines = (tmp_path / "job.sh").read_text().splitlines()
    assert lines[2:5] == [
        '#SBATCH --comment="two # words, \\"one\\" \\\\"',
        '#SBATCH -J "a b"',
        "#SBATCH --gres=gpu:a100:2",
    ]


def test_one_node_needs_no_engine(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("print(1)")
    words = ["submit", "--dry-run", "-N1", "-n4", "--files", "auto", "--job", str(tmp_path / "job"), str(app)]
    assert main(words) == 0
    assert "--engine local" in (tmp_path / "job.sh").read_text()


def test_what_cannot_be_submitted_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("print(1)")
    for words, says in (
        (["--redundancy", "2", "-N2"], "is for ranks on one host"),
        (["-N2", "--signal", "x"], "is in the script"),
        (["-N2", "--comment", "a\nb"], "--comment: a directive of sbatch cannot hold more than one line"),
        (["-N2", "-c", "4"], "for processors: --cpus-per-task=4"),
        (["-N2", "--job", str(tmp_path / 'a"b')], "choose another --job"),
    ):
        assert main(["submit", "--dry-run", "--job", str(tmp_path / "job"), *words, str(app)]) == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "job.sh").exists()


def test_a_script_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the user's own, or has been changed as its head says."""
    app, script = tmp_path / "app.py", tmp_path / "job.sh"
    app.write_text("print(1)")
    script.write_text("mine")
    words = ["submit", "--dry-run", "--job", str(tmp_path / "job"), str(app)]
    assert main(words) == 0 and (tmp_path / "job.sh.1").read_text() == "mine"
    assert f"another script was there, and is now {script}.1" in capsys.readouterr().out
    written = script.stat()
    assert main(words) == 0 and script.stat().st_mtime_ns == written.st_mtime_ns, (
        "the same is not written again"
    )
    assert "another" not in capsys.readouterr().out
    script.write_text(script.read_text().replace("exit $code", "exit 0"))
    assert main(words) == 0 and "exit 0" in (tmp_path / "job.sh.2").read_text()
    assert sorted(each.name for each in tmp_path.glob("job.sh*")) == ["job.sh", "job.sh.1", "job.sh.2"]


def test_a_script_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("print(1)")
    (tmp_path / "job.sh").mkdir()
    assert main(["submit", "--dry-run", "--job", str(tmp_path / "job"), str(app)]) == 0
    assert (tmp_path / "job.sh.1").is_dir()
    assert main(["submit", "--dry-run", "--job", str(app / "job"), str(app)]) == 2
    assert "the script cannot be written: " in capsys.readouterr().err


def script_sent(place: Path, *numbers: int, state: str) -> str:
    """What the script asks of Slurm when it gets these signals: its `ckpt run` takes a last checkpoint, and is at that when
    the second one comes. `state`: what Slurm calls the job by then; "" if it does not answer."""
    tools = place / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(
        "#!/bin/sh\n"
        f"if [ $1 = requeue ]; then echo $1 $2 >>{place}/asked\n"
        f"elif [ ! -e {place}/stops ]; then echo JobState=RUNNING Requeue=1\n"
        f"elif [ -n '{state}' ]; then echo 'JobState={state} Requeue=1'; else exit 1; fi\n"
    )
    run = place / "run"
    last = f"touch {place}/stops; sleep {0.3 * (len(numbers) - 1)}; exit 75"
    run.write_text(f"#!/bin/bash\ntrap '{last}' TERM\ntouch {place}/runs\nwhile :; do sleep 0.01; done\n")
    for path in (tools / "scontrol", run):
        path.chmod(0o755)
    (place / "asked").touch()
    text = batch.script(
        name="job", log="log", path="job.sh", cwd=str(place), lead=60, nodes=[], sbatch={}, run=str(run)
    )
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    with subprocess.Popen(["bash", "-c", text], env=environment, start_new_session=True) as script:
        for number, done in zip(numbers, ("runs", "stops"), strict=False):
            while not (place / done).exists():
                time.sleep(0.01)
            script.send_signal(number)
        assert script.wait(30) == 75
    return (place / "asked").read_text()


def test_before_the_limit_the_job_is_queued_again(tmp_path: Path) -> None:
    assert script_sent(tmp_path, signal.SIGUSR1, state="RUNNING") == "requeue 7\n"


def test_a_job_that_is_cancelled_is_not_queued_again(tmp_path: Path) -> None:
    assert (
        script_sent(
            tmp_path,
            signal.SIGTERM,
            state="COMPLETING PreemptEligibleTime=2026-11-29T10:00:00 PreemptTime=None",
        )
        == ""
    )


def test_a_job_that_is_cancelled_before_its_limit_is_not_queued_again(tmp_path: Path) -> None:
    """While it takes its last checkpoint."""
    assert script_sent(tmp_path, signal.SIGUSR1, signal.SIGTERM, state="COMPLETING Reason=None") == ""


@pytest.mark.parametrize("state", ["COMPLETING Reason=TimeLimit", ""])
def test_a_job_whose_limit_comes_before_its_checkpoint_is_queued_again(tmp_path: Path, state: str) -> None:
    """So it is where Slurm does not answer."""
    assert script_sent(tmp_path, signal.SIGUSR1, signal.SIGTERM, state=state) == "requeue 7\n"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING PreemptTime=2026-11-29T10:00:00"])
def test_a_job_that_is_to_make_place_is_queued_again(tmp_path: Path, state: str) -> None:
    assert script_sent(tmp_path, signal.SIGTERM, state=state) == "requeue 7\n"
