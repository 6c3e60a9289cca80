"""How somebody is told who does not look at the screen: the terminal's bell, the desktop, a webhook."""
