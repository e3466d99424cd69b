"""kafka-metadata-shell: looks around in the metadata of a cluster as in folders and files, without its nodes."""
