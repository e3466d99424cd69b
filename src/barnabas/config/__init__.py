"""Every setting once: name, type, default, valid values, update mode, documentation.

From the one table in `settings.tsv` come the properties file's meaning, the command line's overrides,
DescribeConfigs, AlterConfigs and the reference page.
"""
