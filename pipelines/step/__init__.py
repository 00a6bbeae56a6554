"""How a step runs: Spark, work in the background, interrupts, errors."""
