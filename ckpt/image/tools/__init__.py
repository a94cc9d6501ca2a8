"""Libraries that programs work with: progress bars, locks, expressions, tests, greenlets."""
