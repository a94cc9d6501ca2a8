"""One process's numbers: row exchanges, and a factorisation of several processes one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt.abft.decisions.encoding import subtraction, unit, weights
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.steps import Share, trailing_group
from ckpt.abft.numbers import local as local_numbers
from ckpt.abft.numbers import methods
from ckpt.abft.numbers.local import Exchange, Local, moves
from ckpt.abft.numbers.methods import LocalCholesky


@pytest.mark.parametrize("seed", range(20))
def test_moves_are_what_the_exchanges_do(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape, k = Shape(2, 2, 32, 4), 2
    pivots = np.array([random.integers(8 + t, 32) for t in range(4)])
    order = np.arange(32)
    for t, pivot in enumerate(pivots):
        order[[8 + t, pivot]] = order[[pivot, 8 + t]]
    found = moves(shape, k, pivots)
    assert found.into == list(order[8:12])
    assert {target: source for source, target in found.out} == {
        row: order[row] for row in range(12, 32) if order[row] != row
    }
    assert all(8 <= source < 12 for source, _ in found.out)


@pytest.mark.parametrize("P", [1, 2, 3])
@pytest.mark.parametrize("exchanges", [True, False])
def test_who_gives_which_rows_and_gets_which(P: int, exchanges: bool) -> None:
    random, shape, k = np.random.default_rng(P), Shape(P, 2, 48, 4), 3
    pivots = np.array([random.integers(12 + t, 48) if exchanges else 12 + t for t in range(4)])
    plain, found = moves(shape, k, pivots), Exchange(shape, k, pivots)
    assert [(int(p), int(place)) for p, place in zip(found.p, found.places, strict=True)] == [
        shape.local(row) for row in plain.into
    ]
    for p in range(P):
        assert found.into(p).tolist() == [
            shape.local(row)[1] for row in plain.into if shape.local(row)[0] == p
        ]
        out = [
            (shape.local(source)[1], shape.local(to)[1])
            for source, to in plain.out
            if shape.local(to)[0] == p
        ]
        assert list(zip(found.leaving(p).tolist(), found.arriving(p).tolist(), strict=True)) == out


@pytest.mark.parametrize("part_bytes", [1, 3 * 13 * 8, 1 << 20])
@pytest.mark.parametrize("is_watched", [True, False])
def test_a_product_is_subtracted_in_parts(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int, is_watched: bool
) -> None:
    monkeypatch.setattr(local_numbers, "_PRODUCT_BYTES", part_bytes)
    random, shape = np.random.default_rng(1), Shape(1, 1, 16, 4)
    local = Local(shape, 0, np.dtype(float), 1)
    local.numbers[...] = before = random.normal(size=(16, 17))
    if is_watched:
        local.watch()
    lower, upper = random.normal(size=(11, 4)), random.normal(size=(4, 13))
    list(local._subtracting(5, 4, lower, upper, upper.sum(axis=1) if is_watched else None))
    assert np.array_equal(local.numbers[:5], before[:5]) and np.array_equal(
        local.numbers[:, :4], before[:, :4]
    )
    assert np.allclose(local.numbers[5:, 4:], before[5:, 4:] - lower @ upper, rtol=1e-14, atol=1e-14)
    list(local._subtracting(16, 4, lower[:0], upper, upper.sum(axis=1) if is_watched else None))
    list(local._subtracting(5, 17, lower, upper[:, :0], np.zeros(4) if is_watched else None))


def whole(shape: Shape, parts: dict[tuple[int, int], Local]) -> np.ndarray:
    found = np.empty((shape.order, shape.order), parts[0, 0].dtype)
    for p in range(shape.P):
        for q in range(shape.Q):
            rows = found[shape.row_numbers(p)].reshape(-1, shape.groups, shape.Q, shape.nb)
            rows[:, :, q] = (
                parts[p, q].numbers[:, : shape.groups * shape.nb].reshape(-1, shape.groups, shape.nb)
            )
            found[shape.row_numbers(p)] = rows.reshape(-1, shape.order)
    return found


def filled(
    shape: Shape, matrix: np.ndarray, right: np.ndarray, kind: type[Local] = Local
) -> dict[tuple[int, int], Local]:
    parts = {}
    for p in range(shape.P):
        rows = matrix[shape.row_numbers(p)].reshape(-1, shape.groups, shape.Q, shape.nb)
        for q in range(shape.Q + 1):
            local = parts[p, q] = kind(shape, p, matrix.dtype, right.shape[1])
            for group in range(shape.groups):
                much = weights(0, group, shape.Q)
                total = sum(much[v] * rows[:, group, v] for v in range(shape.Q))
                local.block(group)[...] = rows[:, group, q] if q < shape.Q else total
            local.right_hand_sides[...] = right[shape.row_numbers(p)]
    return parts


def step(shape: Shape, parts: dict[tuple[int, int], Local], k: int) -> None:
    owner, root = shape.owner(k), shape.root(k)
    panels = parts[root, owner].factorise(k, {p: parts[p, owner].part(k) for p in range(shape.P)})
    for q in range(shape.Q + 1):
        start = trailing_group(shape, k, q, ()) * shape.nb
        column = [parts[p, q] for p in range(shape.P)]
        given = {p: column[p].rows_for(k, panels[p], start) for p in range(shape.P) if p != root}
        for p, rows in given.items():
            assert column[root].count_rows(k, panels[root], p)[0] == len(rows)
        update = column[root].solve(k, panels[root], start, given)
        is_next = k + 1 < shape.blocks and q == shape.owner(k + 1) and type(column[0]) is Local
        for p in range(shape.P):
            assert column[root].count_rows(k, panels[root], p)[1] == len(update.out[p])
            before = column[p].numbers.copy()
            ahead = column[p].ahead(k, panels[p], start, update) if is_next else None
            assert np.array_equal(column[p].numbers, before)
            for _ in column[p].applying(k, panels[p], start, update, q == owner):
                pass
            if ahead is not None:
                assert np.allclose(ahead, column[p].part(k + 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("P", "Q"), [(1, 1), (2, 2), (3, 2), (2, 3)])
def test_checksums_hold_after_every_step_and_u_solves_the_system(P: int, Q: int) -> None:
    random, shape = np.random.default_rng(P * 10 + Q), Shape(P, Q, 6 * Q, 3)
    matrix, right = random.normal(size=(shape.order, shape.order)), random.normal(size=(shape.order, 2))
    parts = filled(shape, matrix, right)
    for k in range(shape.blocks):
        step(shape, parts, k)
        for p in range(P):
            for group in range(shape.groups):
                much = weights(0, group, Q)
                total = sum(much[q] * parts[p, q].block(group) for q in range(Q))
                assert np.allclose(parts[p, Q].block(group), total)
            for q in range(Q):
                # not to the last bit: BLAS may add up otherwise in matrices of another width
                one, other = parts[p, q].right_hand_sides, parts[p, Q].right_hand_sides
                assert np.allclose(one, other, rtol=1e-12, atol=1e-12)
    upper = whole(shape, parts)
    assert np.array_equal(upper, np.triu(upper))
    found = np.empty((shape.order, 2))
    for p in range(P):
        found[shape.row_numbers(p)] = parts[p, 0].right_hand_sides
    assert np.allclose(np.linalg.solve(upper, found), np.linalg.solve(matrix, right))


@pytest.mark.parametrize("together", [1, 2, 4])
@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize(("P", "Q"), [(1, 1), (2, 2), (3, 2), (2, 3), (1, 3)])
def test_cholesky_changes_the_lower_triangle_only_and_checksums_hold(
    monkeypatch: pytest.MonkeyPatch, P: int, Q: int, is_watched: bool, together: int
) -> None:
    """A row of a group that is above the group's own rows stays as it was until it becomes U."""
    monkeypatch.setattr(methods, "_GROUPS_AT_ONCE", together)
    random, shape = np.random.default_rng(P * 10 + Q), Shape(P, Q, 6 * Q, 3)
    half = random.normal(size=(shape.order, shape.order)) + 1j * random.normal(
        size=(shape.order, shape.order)
    )
    matrix = half @ half.conj().T + np.eye(shape.order)
    parts = filled(shape, matrix, np.zeros((shape.order, 0)), LocalCholesky)
    for part in parts.values() if is_watched else ():
        part.watch()
    held = [tuple(unit(q, Q) for _ in range(shape.groups)) for q in range(Q)]
    held.append(tuple(weights(0, group, Q) for group in range(shape.groups)))
    for k in range(shape.blocks):
        before = {place: part.numbers.copy() for place, part in parts.items()}
        for (_, q), part in parts.items():
            assert isinstance(part, LocalCholesky)
            part.begin(held[q], trailing_group(shape, k, q, ()))
        step(shape, parts, k)
        for (p, q), part in parts.items():
            for group in range(shape.groups):
                later = slice(
                    shape.rows_before(p, k + 1), shape.rows_before(p, group // together * together * Q)
                )
                assert np.array_equal(part.block(group)[later], before[p, q][later, shape.group_slice(group)])
                total = sum(held[Q][group][v] * parts[p, v].block(group) for v in range(Q))
                assert np.allclose(parts[p, Q].block(group), total)
            if part.sums is not None:
                part.sums.verify()
                assert not part.sums.corrected
    upper = whole(shape, parts)
    assert np.array_equal(upper, np.triu(upper))
    lower = (upper / np.sqrt(np.diagonal(upper).real)[:, None]).conj().T
    assert np.allclose(lower, np.linalg.cholesky(matrix))


def test_what_was_subtracted_can_be_undone() -> None:
    shape = Shape(1, 3, 6, 2)
    random = np.random.default_rng(1)
    matrix = random.normal(size=(6, 6))
    parts = filled(shape, matrix, np.zeros((6, 1)))
    checks = parts[0, 3]
    before = checks.numbers.copy()
    given = {q: parts[0, q].block(0) for q in (0, 2)}
    held = (unit(0, 3), weights(0, 0, 3), unit(2, 3))
    share = Share("subtract", 0, 1, subtraction(held, unit(1, 3)), unit(1, 3))
    checks.combine(share, given, 6)
    assert np.allclose(checks.block(0), matrix[:, 2:4])
    checks.undo_shares()
    assert np.array_equal(checks.numbers, before)
    checks.combine(share, given, 6)
    checks.undo_shares(settled={0})
    assert np.allclose(checks.block(0), matrix[:, 2:4]), "what counts is not undone"
