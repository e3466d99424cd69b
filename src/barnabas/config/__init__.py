"""Every setting once: name, type, default, valid values, update mode, documentation.

The table in `settings.tsv` is the single source for parsing properties files and command-line overrides, for
DescribeConfigs and AlterConfigs, and for the reference page.
"""
