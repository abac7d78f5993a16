"""What tests share: small collections, oracles, processes, stores."""
