"""Files by URL, local or on an object store."""
