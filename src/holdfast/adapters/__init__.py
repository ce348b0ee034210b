"""holdfast under other agent frameworks, each in the words of its own users."""
