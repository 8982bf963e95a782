"""Files, URLs and remote folders: reading, publishing, retries, trust."""
