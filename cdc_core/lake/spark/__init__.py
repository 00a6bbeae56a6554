"""What Spark does with lake tables. Only this folder of the lake imports PySpark."""
