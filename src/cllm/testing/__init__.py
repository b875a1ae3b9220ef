"""Contract suites for stores and providers."""
