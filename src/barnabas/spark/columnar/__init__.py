"""Records as columns and columns as records, with no Python object for any single one of them.

Out of a topic   fetched_batches (the batches of a Fetch response), record_decoding (checked, decompressed, cut into
                 chunks), record_columns (their fields as Arrow; protocol.record_bounds finds them)
Into a topic     sink_columns (which columns rows may have), sink_rows (these columns in one form), varint_packing and
                 record_encoding (rows as record batches)
"""
