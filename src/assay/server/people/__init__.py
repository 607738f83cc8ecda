"""Questions for people: studies, who answers what, and what comes of it."""
