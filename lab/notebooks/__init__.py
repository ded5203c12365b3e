"""The notebooks of Basics-Tutorial: made from their sources, run and checked."""
