"""Downloads Apache Kafka's jars once, for the tests and the demo with DEMO_SINKS. Run by setup."""

from cdc_core.demo.broker import fetch

if __name__ == "__main__":
    print(f"Apache Kafka: {fetch()}")
