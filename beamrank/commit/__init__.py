"""The commit protocol: plans, receipts, manifests, and what reads them."""
