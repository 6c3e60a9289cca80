"""The set-up screen: what is on the box, what to extract, what is proposed, and the plan."""
