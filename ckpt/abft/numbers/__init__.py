"""What one process computes: kernels, its part of a matrix, wrong numbers found and put right. Pure."""
