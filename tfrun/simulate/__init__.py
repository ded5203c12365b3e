"""What n workers would do: laws of times, schemes on a clock, costs, learning. NumPy only."""
