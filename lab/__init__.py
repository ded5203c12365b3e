"""What this repository does with its examples: it tests, measures, draws and describes them."""
