"""One log under two protocols: real Kafka clients and real Pulsar clients use the same topics."""

__version__ = "0.1.0"
