"""What the command line accepts, a module a group of commands. Nothing but argparse is imported here."""
