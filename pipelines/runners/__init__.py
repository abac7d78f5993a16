"""What differs by runner: options, workers, job servers, and watching them."""
