"""The way to a box: SSH as people have it set up, or this machine itself, behind one small interface."""
