"""Credentials: only from a file that nobody else can read; and they get into no text, no message and no image."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import dill
import pytest

from ckpt.diagnosis.credentials import Credentials, load
from ckpt.diagnosis.errors import BadCredentials

SECRET = "s3cr3t-of-the-tests"
FILE = f"""\
[ipmi]
user = "reader"
password = "{SECRET}"
[ipmi."10.1.0.7"]
user = "other"
password = "{SECRET}7"
[snmp."10.1.0.100"]
community = "{SECRET}"
"""


def write(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "credentials.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_for_all_and_for_one_address(tmp_path: Path) -> None:
    known = load(write(tmp_path, FILE))
    assert known.parts() == ("ipmi", "snmp")
    assert known.of("ipmi", "10.1.0.1") == {"user": "reader", "password": SECRET}
    assert known.of("ipmi", "10.1.0.7") == {"user": "other", "password": f"{SECRET}7"}
    assert known.of("snmp", "10.1.0.100") == {"community": SECRET}
    assert known.of("snmp", "10.1.0.1") is None
    assert known.of("redfish", "10.1.0.1") is None
    assert Credentials().parts() == ()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o601])
def test_a_file_that_others_can_reach_is_refused(mode: int, tmp_path: Path) -> None:
    path = write(tmp_path, FILE, mode)
    with pytest.raises(BadCredentials, match=rf"others can read .*mode {mode:o}.*: chmod 600"):
        load(path)


def test_a_link_a_directory_and_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path, FILE))
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name, complaint in {
        "link": "is a link; name the file itself",
        "fifo": "is no regular file",
        ".": "is no regular file",
        "none": "No such",
    }.items():
        with pytest.raises(BadCredentials, match=complaint):
            load(tmp_path / name)


@pytest.mark.root
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    os.chown(path, 65534, 65534)
    with pytest.raises(BadCredentials, match="belongs to another user"):
        load(path)


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{SECRET}"',
        f'[ipmi]\npassword = "{SECRET}',
        f'[ipmi]\npasswort = "{SECRET}"',
        f'[bmc]\npassword = "{SECRET}"',
        f'[ipmi."10.1.0.7"]\ncommunity = "{SECRET}"',
        f'[ipmi]\npassword = ["{SECRET}"]',
        f'[ipmi]\n"{SECRET}" = 1',
    ],
)
def test_an_error_in_the_file_does_not_show_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadCredentials) as caught:
        load(write(tmp_path, text))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_they_get_into_no_text_and_no_image(tmp_path: Path) -> None:
    known = load(write(tmp_path, FILE))
    assert SECRET not in f"{known} {known!r}"
    for dumps in (pickle.dumps, dill.dumps):
        with pytest.raises(BadCredentials, match="cannot be pickled"):
            dumps({"known": [known]})
