"""What a rank does in a factorisation: communication and meetings, its part in the steps, the solution and the report."""
