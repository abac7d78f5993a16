"""The architectures of cross-encoders: each reads its config.json, checks its weights and builds
its model.
"""
