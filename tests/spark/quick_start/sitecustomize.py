"""Imported at the start of each Python process of Spark under test: has it import PySpark from the installed package.

Spark puts an archive of the same PySpark first on the path, which holds no bytecode: a streaming source, which is a
process of its own in each start of a query, then spends two thirds of a second on compiling. The processes of tasks see
to that themselves (`barnabas.spark_daemon`), and are left to it.
"""

import sys

if "barnabas.spark_daemon" not in sys.orig_argv:
    sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]
