"""The architectures of cross-encoders that are scored natively."""
