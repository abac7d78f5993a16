"""The inference backend `openvino`."""
