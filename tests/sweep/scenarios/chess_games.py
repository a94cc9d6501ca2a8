"""Games of random moves, and a search of fixed depth, with python-chess."""

import random

import chess

random.seed(3)


def material(board):
    values = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 0}
    return sum(values[piece.piece_type] * (1 if piece.color else -1) for piece in board.piece_map().values())


def search(board, depth, alpha, beta):
    if depth == 0 or board.is_game_over():
        return material(board) * (1 if board.turn else -1)
    for move in board.legal_moves:
        board.push(move)
        value = -search(board, depth - 1, -beta, -alpha)
        board.pop()
        if value >= beta:
            return beta
        alpha = max(alpha, value)
    return alpha


for game in range(2):
    board = chess.Board()
    while not board.is_game_over() and board.fullmove_number < 30:
        board.push(random.choice(list(board.legal_moves)))
    print(game, board.fen(), len(board.move_stack))
    board = chess.Board()
    for _ in range(6):
        board.push(random.choice(list(board.legal_moves)))
    print(search(board, 3, -100, 100), board.board_fen())
