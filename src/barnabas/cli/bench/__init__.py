"""`barnabas bench`: a load on a cluster, watched while it runs and drawn at its end."""
