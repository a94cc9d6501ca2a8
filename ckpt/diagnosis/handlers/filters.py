"""Does this machine drop what comes from a peer, or goes to it? From the rules of nftables, read by `nft -j list ruleset`.

peer      the address of the peer
device    the interface over which it is reached

values    drops: "yes" or "no"; rule: the chain and handle of the rule that drops

"yes" is proven: in a chain of a hook a rule drops or rejects everything of the peer, and no rule before it in that chain may
have let it pass (a drop is final whatever other chains say). "no" is proven, too: no rule drops or rejects anything that may
be of the peer. Where a rule has conditions that are not looked at here (ports, sets, states of connections), the answer is
that it cannot be told. Rules of the older iptables-legacy are not shown by nft: where there are any, there is no "no".
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask", "dropping"]

_FIELDS = {"prerouting": "saddr", "input": "saddr", "output": "daddr", "postrouting": "daddr"}
_DEVICES = {"prerouting": ("iif", "iifname"), "input": ("iif", "iifname")}
_DROPS = ("drop", "reject")
_STAYS = ("counter", "log", "comment", "mangle")
_VERDICTS = (*_DROPS, "accept", "return", "jump", "goto", "continue", "queue", "vmap", "xt")
_LEGACY = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")

Answer = Literal["yes", "no", "maybe"]


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Read the rules. Raises NoAnswer if that is not allowed, or cannot be told."""
    try:
        done = subprocess.run(
            ("nft", "-j", "list", "ruleset"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within_s,
            check=False,
        )
    except OSError as error:
        raise NoAnswer(f"nft: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer("nft does not answer") from None
    if done.returncode:
        raise NoAnswer(f"nft: {done.stderr.decode(errors='replace').strip() or done.returncode}")
    try:
        rules = json.loads(done.stdout)["nftables"]
        answer, rule = dropping(rules, str(arguments["peer"]), str(arguments["device"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoAnswer("nft printed what cannot be understood") from None
    if answer == "no" and any(_has_tables(path) for path in _LEGACY):
        raise NoAnswer("there are rules of iptables-legacy, which are not looked at")
    if answer == "maybe":
        raise NoAnswer(f"it cannot be told whether rule {rule} drops it")
    return {"drops": answer, "rule": rule}


def _has_tables(path: str) -> bool:
    try:
        return bool(Path(path).read_text().strip())
    except OSError:
        return False


def dropping(ruleset: Iterable[Mapping[str, Any]], peer: str, device: str) -> tuple[Answer, str]:
    """Whether these rules (as nft prints them) drop what comes from `peer` over `device`, or goes there; and which one."""
    chains: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    rules: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for each in ruleset:
        if "chain" in each:
            chain = each["chain"]
            chains[chain["family"], chain["table"], chain["name"]] = chain
        elif "rule" in each:
            rule = each["rule"]
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule)
    version = ipaddress.ip_address(peer).version
    families = ("inet", "ip" if version == 4 else "ip6")
    worst: tuple[Answer, str] = ("no", "")
    for key, chain in chains.items():
        if key[0] not in families or chain.get("hook") not in _FIELDS:
            continue
        found = _of_chain(chain, rules.get(key, []), peer, device)
        if found[0] == "yes":
            return found
        worst = found if found[0] == "maybe" else worst
    others = [key for key, chain in chains.items() if key[0] == "netdev" and chain.get("hook")]
    return ("maybe", f"in chain {others[0][2]}") if others and worst[0] == "no" else worst


def _of_chain(
    chain: Mapping[str, Any], rules: Iterable[Mapping[str, Any]], peer: str, device: str
) -> tuple[Answer, str]:
    passed = ""  # a rule that may have let it pass
    may_drop = ""
    for rule in rules:
        expressions = rule.get("expr", [])
        applies = _applies(expressions, chain["hook"], peer, device)
        if applies == "no":
            continue
        name = f"{rule.get('handle')} of chain {chain['name']}"
        verdicts = list(_verdicts(expressions))
        if any(verdict in _DROPS for verdict in verdicts):
            if applies == "yes" and not passed:
                return "yes", name
            may_drop = may_drop or name
        elif verdicts:
            if verdicts == ["accept"] and applies == "yes":
                return ("maybe", may_drop) if may_drop else ("no", "")
            passed = passed or name
            if verdicts != ["accept"]:  # it goes to another chain, which is not looked at
                may_drop = may_drop or name
    if chain.get("policy") == "drop":
        return ("maybe", passed) if passed else ("yes", f"policy of chain {chain['name']}")
    return ("maybe", may_drop) if may_drop else ("no", "")


def _verdicts(expressions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What a rule does with a packet, other than to count it."""
    for expression in expressions:
        for name in expression:
            if name in _VERDICTS:
                yield name


def _applies(expressions: Iterable[Mapping[str, Any]], hook: str, peer: str, device: str) -> Answer:
    """Does a rule apply to all (yes), to none (no), or to some, perhaps, of the packets of the peer?"""
    answer: Answer = "yes"
    for expression in expressions:
        found: Answer = "yes"
        if "match" in expression:
            found = _match(expression["match"], hook, peer, device)
        elif any(name == "xt" or name not in (*_STAYS, *_VERDICTS) for name in expression):
            found = "maybe"  # limits, quotas, extensions
        if found == "no":
            return "no"
        answer = found if found == "maybe" else answer
    return answer


def _match(match: Mapping[str, Any], hook: str, peer: str, device: str) -> Answer:
    left, right, op = match["left"], match["right"], match.get("op", "==")
    found: Answer = "maybe"
    payload, meta = left.get("payload", {}), left.get("meta", {})
    if payload.get("protocol") in ("ip", "ip6") and payload.get("field") == _FIELDS[hook]:
        found = _covers(right, peer)
    elif meta.get("key") in _DEVICES.get(hook, ()) and isinstance(right, str) and "*" not in right:
        found = "yes" if right == device else "no"
    if op == "!=" and found != "maybe":
        return "no" if found == "yes" else "yes"
    return found if op in ("==", "in", "!=") else "maybe"


def _covers(right: Any, peer: str) -> Answer:
    """Is the peer's address among these?"""
    try:
        if isinstance(right, str):
            return "yes" if ipaddress.ip_address(right) == ipaddress.ip_address(peer) else "no"
        if "prefix" in right:
            network = ipaddress.ip_network(
                f"{right['prefix']['addr']}/{right['prefix']['len']}", strict=False
            )
            return "yes" if ipaddress.ip_address(peer) in network else "no"
        if "set" in right:
            answers = [_covers(each, peer) for each in right["set"]]
            return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"
    except ValueError:
        return "maybe"
    return "maybe"  # ranges, named sets
