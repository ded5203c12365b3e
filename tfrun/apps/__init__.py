"""Makes a folder with one example, your problem and a test: `tfrun new`."""
