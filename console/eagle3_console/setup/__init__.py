"""Setting a run up: what is asked, what is proposed and why, and what becomes of it. Pure but for `work`."""
