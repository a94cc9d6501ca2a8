"""Which rules of nftables drop what is of a peer: proven, excluded, or not to be told. Rules as `nft -j` prints them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from ckpt.diagnosis.handlers.filters import dropping

PEER = "10.0.0.2"


def test_rules_as_nft_prints_them() -> None:
    rules = [
        {"metainfo": {"version": "1.0"}},
        {"table": {"family": "ip", "name": "t"}},
        {
            "chain": {
                "family": "ip",
                "table": "t",
                "name": "c",
                "type": "filter",
                "hook": "input",
                "policy": "accept",
            }
        },
        {
            "rule": {
                "family": "ip",
                "table": "t",
                "chain": "c",
                "handle": 7,
                "expr": [
                    {
                        "match": {
                            "op": "==",
                            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
                            "right": PEER,
                        }
                    },
                    {"drop": None},
                ],
            }
        },
    ]
    assert dropping(rules, PEER, "eth0") == ("yes", "7 of chain c")
    assert dropping(rules, "10.0.0.3", "eth0") == ("no", "")
    assert dropping([], PEER, "eth0") == ("no", "")


CASES = [
    # rules of a chain at the hook, and whether all that is of the peer is dropped
    ("input", "", "ip saddr 10.0.0.2 drop", "yes"),
    ("input", "", "ip saddr 10.0.0.0/24 counter reject", "yes"),
    ("input", "", "ip saddr { 10.0.0.9, 10.0.0.2 } drop", "yes"),
    ("input", "", "ip saddr 10.0.0.3 drop", "no"),
    ("input", "", "ip daddr 10.0.0.2 drop", "maybe"),
    ("output", "", "ip daddr 10.0.0.2 drop", "yes"),
    ("input", "", "drop", "yes"),
    ("input", "", 'iifname "eth0" drop', "yes"),
    ("input", "", 'iifname "eth1" drop', "no"),
    ("input", "", "ip saddr != 10.0.0.2 drop", "no"),
    ("input", "", "ip saddr 10.0.0.2 tcp dport 22 drop", "maybe"),
    ("input", "", "ip saddr 10.0.0.2 limit rate 10/second drop", "maybe"),
    ("input", "", "numgen random mod 100 < 10 drop", "maybe"),
    ("input", "", "ct state established accept; ip saddr 10.0.0.2 drop", "maybe"),
    ("input", "", "ip saddr 10.0.0.2 accept; ip saddr 10.0.0.2 drop", "no"),
    ("input", "", "ip saddr 10.0.0.9 accept; ip saddr 10.0.0.2 drop", "yes"),
    ("input", "policy drop;", "", "yes"),
    ("input", "policy drop;", "ip saddr 10.0.0.2 accept", "no"),
    ("input", "policy drop;", "ct state established accept", "maybe"),
    ("forward", "", "drop", "no"),
]


@pytest.mark.root
@pytest.mark.parametrize(("hook", "policy", "rules", "expected"), CASES)
def test_real_rules(hook: str, policy: str, rules: str, expected: str) -> None:
    if shutil.which("nft") is None or shutil.which("unshare") is None:
        pytest.skip("needs nft and unshare")
    commands = [f"add table ip t; add chain ip t c {{ type filter hook {hook} priority 0; {policy} }}"]
    commands += [f"add rule ip t c {rule.strip()}" for rule in rules.split(";") if rule]
    script = "\n".join(f"nft '{command}' || exit 9" for command in commands) + "\nnft -j list ruleset"
    done = subprocess.run(
        ("unshare", "--net", "sh", "-c", script), capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip(f"this kernel has no such rule: {done.stderr.decode().strip()[:80]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["nftables"]
    assert dropping(found, PEER, "eth0")[0] == expected
