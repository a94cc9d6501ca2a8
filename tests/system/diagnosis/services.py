"""Services that a job needs of a host: a remote shell (sshd) and a file system whose server is elsewhere.

Instead of NFS, of which no kernel here has a server: a file system of FUSE (fusefat) whose process is stopped is what a
client of NFS sees when its server is gone: whoever looks at it waits, and cannot be ended meanwhile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import Cluster, shell

SSHD = "/usr/sbin/sshd"


class RemoteShell:
    """A real sshd on a host, at port 22; it listens when this is made."""

    def __init__(self, cluster: Cluster, host: str, folder: Path) -> None:
        key, config = folder / "host-key", folder / "sshd_config"
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        subprocess.run(words, check=True, timeout=20)
        config.write_text(f"HostKey {key}\nStrictModes no\nPidFile none\nUsePAM no\n")
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self._server = subprocess.Popen(
            (*shell(cluster.namespace(host)), SSHD, "-D", "-e", "-f", str(config)), stderr=subprocess.PIPE
        )
        assert self._server.stderr is not None
        for line in self._server.stderr:
            if b"listening on" in line:
                return
        raise AssertionError(f"sshd ended: {self._server.wait()}")

    def end(self) -> None:
        self._server.kill()
        self._server.wait()
        if self._server.stderr is not None:
            self._server.stderr.close()


class RemoteFiles:
    """A file system at `mount`; `stop`: its server does not answer any more."""

    def __init__(self, folder: Path) -> None:
        image, self.mount = folder / "image", folder / "shared"
        self.mount.mkdir()
        with open(image, "wb") as file:
            file.truncate(8 << 20)
        subprocess.run(("mkfs.vfat", str(image)), check=True, capture_output=True, timeout=20)
        self._server = subprocess.Popen(("fusefat", "-f", "-o", "rw+", str(image), str(self.mount)))
        devices.until(lambda: os.path.ismount(self.mount), "the file system")

    def stop(self) -> None:
        self._server.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        self._server.kill()
        self._server.wait()
        subprocess.run(("umount", "-l", str(self.mount)), check=False, capture_output=True, timeout=20)


def missing() -> list[str]:
    """The programs for these that are not there."""
    return [
        *(
            each
            for each in ("fusefat", "mkfs.vfat", "ssh-keygen")
            if shutil.which(each, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
        ),
        *([] if os.path.exists(SSHD) else [SSHD]),
    ]
