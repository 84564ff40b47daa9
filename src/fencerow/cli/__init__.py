"""The command line: `fencerow` and its groups of commands."""
