"""The command line, one file per command. Heavy imports wait until a command needs them."""
