"""What is on the disks of a node: formatting folders, and looking into their files without a cluster."""
