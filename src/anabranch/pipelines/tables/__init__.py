"""The pipeline that keeps topics as tables."""
