"""The same changes applied by Spark. Only this folder of the lake imports PySpark."""
