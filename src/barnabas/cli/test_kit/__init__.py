"""The commands behind the test kit (`barnabas.testing`)."""
