"""The registry of schemas: subjects, their versions, and which may follow which."""
