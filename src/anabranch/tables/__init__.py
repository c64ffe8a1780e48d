"""Topics as tables: a topic's history as Parquet files, and the manifest that says which of them count."""
