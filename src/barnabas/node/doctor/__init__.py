"""What `barnabas doctor` finds out: `examination` rehearses a start on a disk that keeps every change in memory
(`rehearsal_disk`), so that what is told of a folder is what a start would make of it.
"""
