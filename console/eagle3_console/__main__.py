from eagle3_console.cli import entry

entry()
