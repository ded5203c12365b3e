"""What limits a run: facts of its workers' time, and rules over them. `tfrun doctor` shows both."""
