"""From the log of events to tables, on Spark. The only room that imports pyspark."""
