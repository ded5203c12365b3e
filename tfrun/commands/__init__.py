"""The commands of tfrun: a module for each."""
