"""What tools, tests and measurements do with the examples; the examples do not know it."""
