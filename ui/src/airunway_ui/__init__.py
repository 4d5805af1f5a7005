"""The page of AI Runway: its server, what it reads, and how it shows it."""
