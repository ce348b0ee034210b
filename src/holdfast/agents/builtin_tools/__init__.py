"""Ready-made tools that an agent can be given: a plan, files, long results."""
