"""What drives the coordinators: their partitions are loaded, written to and given up here, whatever is in them."""
