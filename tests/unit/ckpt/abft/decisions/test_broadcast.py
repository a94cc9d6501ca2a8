"""Ways of a panel along a row: all columns up to 9 and more, every owner, every death."""

from __future__ import annotations

import pytest

from ckpt.abft.decisions.broadcast import STAR_COLUMNS, resend, ways

COLUMNS = range(1, 11)


@pytest.mark.parametrize("star", [True, False, None])
def test_everybody_gets_the_panel_once_from_its_father(star: bool | None) -> None:
    for columns in COLUMNS:
        for owner in range(columns):
            once_from_its_father(columns, owner, star)


def once_from_its_father(columns: int, owner: int, star: bool | None) -> None:
    found = ways(range(columns), owner, star=star)
    assert set(found) == set(range(columns)) and found[owner].father is None
    for v, way in found.items():
        for son in way.sons:
            assert found[son].father == v
    sons = [son for way in found.values() for son in way.sons]
    assert sorted([*sons, owner]) == list(range(columns))
    reached, front = {owner}, [owner]
    while front:
        front = [son for v in front for son in found[v].sons]
        reached.update(front)
    assert reached == set(range(columns))


@pytest.mark.parametrize("columns", range(STAR_COLUMNS + 1, 11))
def test_the_next_owner_is_first_and_the_others_are_in_two_rings(columns: int) -> None:
    found = ways(range(columns), 2)
    assert found[2].sons[0] == 3 and found[3].sons == ()
    assert len(found[2].sons) == 3 and all(len(way.sons) <= 1 for v, way in found.items() if v != 2)
    assert max(_depth(found, v) for v in found) == -(-(columns - 2) // 2)


def _depth(found: dict, v: int) -> int:
    return 0 if found[v].father is None else 1 + _depth(found, found[v].father)


def test_virtual_columns_may_be_missing() -> None:
    assert ways((0, 1, 2), 1, star=True)[1].sons == (2, 0)
    with pytest.raises(ValueError):
        ways((0, 2), 1)


@pytest.mark.parametrize("star", [True, False])
@pytest.mark.parametrize("columns", range(2, 11))
def test_after_any_death_at_any_moment_all_survivors_have_the_panel_or_none(columns: int, star: bool) -> None:
    """A death breaks a broadcast after any number of its messages, whatever their order."""
    for owner in range(columns):
        found = ways(range(columns), owner, star=star)
        for dead in range(columns):
            for arrived in _states(found, owner):
                having = sorted(arrived - {dead})
                lacking = sorted(set(range(columns)) - arrived - {dead})
                pairs = resend(having, lacking)
                if not having:
                    assert pairs is None and dead == owner and arrived == {owner}
                    continue
                assert pairs is not None and [target for _, target in pairs] == lacking
                assert all(source in having for source, _ in pairs)


def _states(found: dict, owner: int) -> set[frozenset[int]]:
    """Who may have the panel, at any moment: sons after fathers, each father's sons in their order."""
    seen, front = set(), [frozenset({owner})]
    while front:
        state = front.pop()
        if state in seen:
            continue
        seen.add(state)
        for v in state:
            later = [son for son in found[v].sons if son not in state]
            if later:
                front.append(state | {later[0]})
    return seen
