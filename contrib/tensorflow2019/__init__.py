"""The files of the code of 2019: checkpoints of TensorFlow, made into folders that transformers and
beamrank load.
"""
