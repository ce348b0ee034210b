"""One module for each command, with its name."""
