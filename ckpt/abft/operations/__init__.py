"""Operations beside the solve: checked products, products on the grid, iterations on encoded arrays, factors."""
