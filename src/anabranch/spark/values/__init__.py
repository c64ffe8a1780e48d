"""Values with schemas: a topic's registered schema as columns, both ways."""
