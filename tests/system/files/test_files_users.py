"""Files of other users: the program may write to them, and may not set their attributes; what others did is left alone.

The job runs as another user than root. Python may lie where only root may read, so that user may read everything
(CAP_DAC_READ_SEARCH), and write what its own rights allow.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.store.test_store_disks import needs_root
from tests.system.support import PATIENCE_S, ckpt_command, write_app

pytestmark = pytest.mark.system

NOBODY = 65534

CHANGES = """
    import os, sys
    import ckpt
    ckpt.enable()
    os.chdir(sys.argv[1])
    with open("own", "w") as file:
        file.write("then")
    os.mkdir("directory")
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        pass
    if os.path.exists(sys.argv[2]):
        print("went on with", *(open(name).read() for name in ("written", "replaced", "removed")))
        sys.exit()
    with open("written", "r+") as file:
        file.write("now!")
    with open("new", "w") as file:
        file.write("now!")
    os.replace("new", "replaced")
    os.remove("removed")
    with open("own", "w") as file:
        file.write("now!")
    os.rmdir("directory")
    os._exit(9)
"""


def as_nobody(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    ids = ["--reuid", f"{NOBODY}", "--regid", f"{NOBODY}", "--clear-groups"]
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    command = ["setpriv", *ids, *rights, "env", f"HOME={cwd}", f"TMPDIR={cwd}", *ckpt_command(*arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        check=False,
    )


@needs_root
def test_contents_of_another_users_files_go_back_and_what_may_not_be_set_is_named(tmp_path: Path) -> None:
    """Such a restart used to be refused, however often it was tried."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (Debian: util-linux)")
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    work, place, through = tmp_path / "work", tmp_path / "place", tmp_path / "through"
    for each in (work, place):
        each.mkdir()
        each.chmod(0o777)
    for name in ("written", "replaced", "removed"):
        (work / name).write_text(f"{name}, of root")
        (work / name).chmod(0o646 if name == "written" else 0o644)
    app, job = write_app(tmp_path, CHANGES), place / "job"
    done = as_nobody("run", "-n", 1, "--job", job, app, work, through, cwd=place)
    assert done.returncode == 9, done.stderr
    assert (work / "written").read_text() == "now!ten, of root"

    (work / "own").unlink()
    (work / "own").write_text("of root")
    (work / "own").chmod(0o600)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (work / "directory").symlink_to(elsewhere)
    through.touch()
    done = as_nobody("restart", job, cwd=place)
    assert done.returncode == 0, done.stderr
    output = (job / "output" / "rank-0.out").read_text()
    assert "went on with written, of root replaced, of root removed, of root" in output
    for name, attribute in (("written", "time"), ("replaced", "owner"), ("removed", "owner")):
        problem = f"its {attribute} cannot be put back, since it was a file of another user (0)"
        assert f"not put back: {work}/{name}: {problem}" in done.stderr
    for name in ("own", "directory"):
        assert f"not put back: {work}/{name}: somebody else has changed the file since" in done.stderr
    assert (work / "own").read_text() == "of root" and (work / "own").stat().st_uid == 0
    assert (work / "directory").is_symlink() and not list(elsewhere.iterdir())
