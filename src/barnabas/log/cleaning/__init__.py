"""Compaction: which logs are dirty, what stays of their records, and the segments that take the place of old ones.

`dirt` says how dirty a log is and what of it may be cleaned, and `grouping` which segments become one. `log_cleaning`
is what a worker process is ordered to do, and `two_passes` how it does that: `opened_batches` finds the records,
`key_hashes`, `offset_map`, `cleaned_transactions` and `batch_filter` decide what stays of them, and `new_segment`
writes that. `swap` is how the log takes over the result.
"""
