"""The runners: their options, workers, job servers, and a watchdog."""
