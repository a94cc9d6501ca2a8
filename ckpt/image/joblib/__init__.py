"""joblib: pools of processes of its own kind (loky)."""
