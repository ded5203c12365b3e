"""Plants mistakes in the code, and counts how many of them the tests find."""
