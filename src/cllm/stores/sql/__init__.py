"""Stores in an SQL database: the schema, its migrations, and a store for each engine."""
